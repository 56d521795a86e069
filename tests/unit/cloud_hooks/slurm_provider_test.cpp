#include "cloud_hooks/slurm/slurm_provider.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.hpp"

namespace mayfly::cloud_hooks {
namespace {

const std::string kSlurmId = "6f1f3c1e-0000-4000-8000-000000000001";

/// Puts scripts that replace sbatch, squeue and scancel first in PATH. Their jobs are in a folder.
class FakeSlurm : public ::testing::Test {
 protected:
  FakeSlurm() {
    ::signal(SIGPIPE, SIG_IGN);
    folder_ =
        std::filesystem::temp_directory_path() / ("mayfly_slurm_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "jobs");
    old_path_ = ::getenv("PATH");
    ::setenv("PATH", (folder_.string() + ":" + old_path_).c_str(), 1);
    program("sbatch", R"(
      [ ! -e "$D/refuse" ] || { cat "$D/refuse" >&2; exit 1; }
      n=$(($(ls "$D/jobs" | wc -l) + 41)); cat > "$D/jobs/$n"; echo "$@" > "$D/words"
      for w; do case "$w" in --comment=*) c=${w#--comment=};; --partition=*) p=${w#*=};; esac; done
      echo "$n|PENDING|0:00|$p|(null)|Priority||$c" >> "$D/queue"
      [ ! -e "$D/silent" ] || sleep 60
      echo "$n")");
    program("squeue", R"(cat "$D/queue" 2>/dev/null; true)");
    program("scancel", R"(
      [ -e "$D/jobs/$1" ] || {
        echo "scancel: error: Kill job error on job id $1: Invalid job id specified" >&2; exit 1; }
      sed -i "s/^$1|[A-Z]*/$1|CANCELLED/" "$D/queue")");
    options_.job = "j";
    options_.log_dir = "/logs";
    options_.sbatch_words = {"--gres=gpu:1"};
    request_.request_id = kSlurmId;
    request_.offer = {"", "spot", Market::kSpot};
    request_.startup_text = "#!/bin/sh\nexec worker\n";
    request_.lifetime_max = seconds(90);
  }
  ~FakeSlurm() override {
    ::setenv("PATH", old_path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  void program(const std::string& name, const std::string& body) {
    const std::string path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\nD='" << folder_.string() << "'\n" << body << "\n";
    ::chmod(path.c_str(), 0755);
  }
  void file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text << "\n";
  }
  std::string text_of(const std::string& name) {
    const Result<std::string> text = read_text_file(folder_ / name, 10'000);
    return text.ok() ? text.value() : "";
  }

  std::filesystem::path folder_;
  std::string old_path_;
  SlurmProviderOptions options_;
  ServerRequest request_;
};

TEST_F(FakeSlurm, SubmitsOneJobPerServerWithLabelLimitAndWarning) {
  const auto provider = make_slurm_provider(options_);
  request_.count = 2;
  const RequestOutcome outcome = provider->request(request_);
  ASSERT_FALSE(outcome.error) << outcome.error->detail;
  ASSERT_EQ(outcome.servers.size(), 2u);
  EXPECT_EQ(outcome.servers[0].id, "41");
  const std::string words = text_of("words");
  for (const char* word :
       {"--nodes=1", "--no-requeue", "--job-name=mayfly-j", "--partition=spot", "--time=2",
        "--signal=B:USR1@60", "--gres=gpu:1", "--output=/logs/slurm-%j.log", "--parsable"}) {
    EXPECT_NE(words.find(word), std::string::npos) << word << " in " << words;
  }
  EXPECT_NE(words.find("--comment=" + kSlurmId + " spot"), std::string::npos) << words;
  EXPECT_EQ(text_of("jobs/41"), "#!/bin/sh\nexport MAYFLY_SERVER=\"$SLURM_JOB_ID\"\nexec worker\n");
}

TEST_F(FakeSlurm, TheUsersOptionsDoNotReplaceTheNamesByWhichJobsAreFound) {
  options_.sbatch_words = {"--job-name=mine", "--comment=mine"};
  const auto provider = make_slurm_provider(options_);
  ASSERT_FALSE(provider->request(request_).error);
  const std::string words = text_of("words");
  EXPECT_GT(words.find("--job-name=mayfly-j"), words.find("--job-name=mine")) << words;
  const auto servers = provider->list().value();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].request_id, kSlurmId);
}

TEST_F(FakeSlurm, ARepeatedRequestSubmitsOnlyWhatIsMissing) {
  options_.timeout = milliseconds(300);
  const auto provider = make_slurm_provider(options_);
  file("silent", "");
  const RequestOutcome lost = provider->request(request_);
  ASSERT_TRUE(lost.error);
  EXPECT_EQ(lost.error->kind, ProviderErrorKind::kRate);
  std::filesystem::remove(folder_ / "silent");
  options_.timeout = seconds(20);
  const RequestOutcome again = provider->request(request_);
  ASSERT_FALSE(again.error) << again.error->detail;
  ASSERT_EQ(again.servers.size(), 1u);
  EXPECT_EQ(again.servers[0].id, "41");
}

TEST_F(FakeSlurm, AWorkerGetsANodeUnlessTheUserSaysWhatPartOfOne) {
  const auto is_exclusive = [&](std::vector<std::string> words) {
    options_.sbatch_words = std::move(words);
    return make_slurm_provider(options_)->preview(request_).find("--exclusive") !=
           std::string::npos;
  };
  EXPECT_TRUE(is_exclusive({}));
  EXPECT_TRUE(is_exclusive({"--account=a", "--qos=b"}));
  EXPECT_FALSE(is_exclusive({"--gres=gpu:1"}));
  EXPECT_FALSE(is_exclusive({"--account=a", "-c", "4"}));
  EXPECT_FALSE(is_exclusive({"--oversubscribe"}));
}

TEST_F(FakeSlurm, ListsAndReleases) {
  const auto provider = make_slurm_provider(options_);
  ASSERT_FALSE(provider->request(request_).error);
  auto servers = provider->list().value();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].state, ServerState::kStarting);
  EXPECT_EQ(servers[0].offer, request_.offer);
  EXPECT_EQ(servers[0].request_id, kSlurmId);
  EXPECT_FALSE(provider->release("41"));
  EXPECT_FALSE(provider->status("41").value().alive());
  EXPECT_FALSE(provider->release("99"));  // Slurm does not know it: as good as released
}

TEST_F(FakeSlurm, ListsJobsWhateverTheUsersShellRestricts) {
  program("squeue", R"(echo "$@" > "$D/words"
                       echo "41|RUNNING|0:05|${SQUEUE_PARTITION-hidden}|(null)|None|n1|x spot")");
  ::setenv("SQUEUE_PARTITION", "other", 1);
  const auto servers = make_slurm_provider(options_)->list().value();
  ::unsetenv("SQUEUE_PARTITION");
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].offer.zone, "hidden");
  EXPECT_NE(text_of("words").find("--all "), std::string::npos) << text_of("words");
}

TEST_F(FakeSlurm, AJobThatFailedSaysSoAndWhereItsOutputIs) {
  file("queue", "41|FAILED|0:00|spot|(null)|JobLaunchFailure|n3|" + kSlurmId + " spot\n" +
                    "42|PREEMPTED|0:09|spot|(null)|None|n3|x spot\n" +
                    "43|FAILED|0:09|spot|(null)|NonZeroExitCode|n4|x spot no data | on_demand\n");
  const auto servers = make_slurm_provider(options_)->list().value();
  ASSERT_EQ(servers.size(), 3u);
  EXPECT_TRUE(servers[0].failed);
  EXPECT_EQ(servers[0].detail,
            "FAILED (JobLaunchFailure) on n3, log /logs/slurm-41.log: does that folder exist? "
            "Nodes without access to it need --cloud-bundle");
  EXPECT_FALSE(servers[1].failed);
  EXPECT_EQ(servers[2].detail,
            "FAILED (NonZeroExitCode) on n4, last output: no data | on_demand, log "
            "/logs/slurm-43.log");
  EXPECT_EQ(servers[2].offer.market, Market::kSpot);
}

TEST_F(FakeSlurm, AJobThatNeedsMoreMemoryThanItsNodeGivesHasFailed) {
  file("queue", "41|OUT_OF_MEMORY|0:09|spot|(null)|OutOfMemory|n3|" + kSlurmId + " spot\n");
  const auto servers = make_slurm_provider(options_)->list().value();
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_FALSE(servers[0].alive());
  EXPECT_TRUE(servers[0].failed);
}

TEST_F(FakeSlurm, RefusalsBecomeTheFiveKinds) {
  const auto provider = make_slurm_provider(options_);
  const auto kind = [&](const std::string& complaint) {
    file("refuse", complaint);
    const RequestOutcome outcome = provider->request(request_);
    return outcome.error ? outcome.error->kind : ProviderErrorKind::kConfig;
  };
  EXPECT_EQ(kind("sbatch: error: Batch job submission failed: Requested node configuration is not "
                 "available"),
            ProviderErrorKind::kCapacity);
  EXPECT_EQ(kind("sbatch: error: QOSMaxSubmitJobPerUserLimit"), ProviderErrorKind::kQuota);
  EXPECT_EQ(kind("sbatch: error: Batch job submission failed: Access denied"),
            ProviderErrorKind::kAuth);
  EXPECT_EQ(kind("sbatch: error: Batch job submission failed: Socket timed out on send/recv"),
            ProviderErrorKind::kRate);
  EXPECT_EQ(kind("sbatch: error: invalid partition specified: nope"), ProviderErrorKind::kConfig);
}

TEST(SlurmText, ReadsTheQueueInTheOrderOfNumbers) {
  const auto servers = slurm::parse_queue(
      "100|RUNNING|1-02:03:04|gpu|a100|None|n1|id on_demand\n"
      "garbage\n"
      "99|PREEMPTED|5:06|gpu|(null)|None||\n");
  ASSERT_EQ(servers.size(), 2u);
  EXPECT_EQ(servers[0].id, "99");
  EXPECT_FALSE(servers[0].alive());
  EXPECT_EQ(servers[1].offer, (Offer{"a100", "gpu", Market::kOnDemand}));
  EXPECT_EQ(servers[1].uptime, seconds(93784));
  EXPECT_EQ(servers[1].request_id, "id");
}

TEST(SlurmText, FeaturesMayBeEitherOfTwo) {
  const auto servers = slurm::parse_queue(
      "17|RUNNING|1:00|p|intel|amd|None|n1|01234567-89ab-4def-8123-456789abcdef spot said a|b\n");
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_EQ(servers[0].offer, (Offer{"intel|amd", "p", Market::kSpot}));
  EXPECT_EQ(servers[0].request_id, "01234567-89ab-4def-8123-456789abcdef");
  EXPECT_NE(servers[0].detail.find("on n1"), std::string::npos) << servers[0].detail;
  EXPECT_NE(servers[0].detail.find("said a|b"), std::string::npos) << servers[0].detail;
}

TEST(SlurmText, ReadsTimesAndNumbers) {
  EXPECT_EQ(slurm::parse_time("0:00"), seconds(0));
  EXPECT_EQ(slurm::parse_time("1:02:03"), seconds(3723));
  for (const char* bad : {"INVALID", "", "5", "1:2:3:4", "-1:00", "x-1:00"}) {
    EXPECT_FALSE(slurm::parse_time(bad)) << bad;
  }
  EXPECT_EQ(slurm::parse_submitted("17;cluster\n"), "17");
  EXPECT_FALSE(slurm::parse_submitted("Submitted batch job 17"));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
