#include "engine/run/run_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/file.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_history.hpp"
#include "engine/run/run_listener.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
  Result<std::string> text = read_text_file(path, 1 << 20);
  return text.ok() ? text.value() : "(" + text.error().detail + ")";
}

std::vector<boost::json::object> lines_of(const std::string& path) {
  std::vector<boost::json::object> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(boost::json::parse(line).as_object());
  }
  return lines;
}

std::unique_ptr<RunDirectory> make(const JobConfig& config) {
  Result<std::unique_ptr<RunDirectory>> made = RunDirectory::create(config);
  EXPECT_TRUE(made.ok()) << made.error().detail;
  return std::move(made).value();
}

JobConfig config_in(const std::string& path) {
  JobConfig config;
  config.run_dir = path;
  return config;
}

StepRecord metric_of(std::uint64_t step) {
  StepRecord metric;
  metric.step = step;
  metric.samples = 128;
  metric.epoch = 0.1;
  metric.loss = 2.302585092994046;
  metric.learning_rate = 0.1;
  metric.members = 4;
  metric.view = 2;
  metric.sample_hash = "00ff";
  return metric;
}

Summary full_summary() {
  Summary s;
  s.outcome = elastic::Outcome::kDone;
  s.steps = 3910;
  s.samples = 500480;
  s.final_digest = "0123456789abcdef0123456789abcdef";
  s.test_top1 = 0.8162;
  s.test_loss = 0.55;
  s.images_per_second = 932.25;
  s.train_seconds = 41.5;
  s.membership_changes = 2;
  RecoveryRecord recovery;
  recovery.cause = elastic::ChangeCause::kLost;
  recovery.members = {2};
  recovery.step = 200;
  recovery.view = 3;
  recovery.redone_microbatches = 2;
  recovery.told_ms = 0.25;
  recovery.step_ms = 41.125;
  recovery.detail = "the worker's process died";
  s.recoveries = {recovery};
  s.workers = {{1, "node-a", 0, 3910}, {2, "node-a", 0, 200}, {4, "node-b", 200, 3910}};
  s.lost_seconds.recoveries = 1.25;
  s.lost_seconds.checkpoints = 0.001;  // too short to be mentioned
  s.cost = 0.4211;
  s.reduction = "exact";
  s.backend = "tcp";
  s.device = "cpu";
  s.isa = "avx512";
  s.model = "resnet20";
  s.data = "cifar10";
  s.seed = 1;
  s.last_checkpoint = "runs/x/checkpoints/step-3910";
  return s;
}

TEST(RunDirectory, MakesTheTreeAndSavesTheResolvedConfiguration) {
  const test_support::TemporaryFolder folder;
  JobConfig config = config_in(folder / "a/run");
  config.lr = 0.25;
  const auto run = make(config);
  EXPECT_EQ(run->path(), config.run_dir);
  for (const char* name : {"logs", "checkpoints", "tb"}) {
    EXPECT_TRUE(std::filesystem::is_directory(run->path() + "/" + name)) << name;
  }
  JobConfig back;
  ASSERT_TRUE(apply_toml(back, text_of(run->path() + "/config.toml"), "config.toml").ok());
  EXPECT_EQ(to_toml(back), to_toml(config));
}

TEST(RunDirectory, WritesOneCompleteJsonObjectPerEventAndStep) {
  const test_support::TemporaryFolder folder;
  const auto run = make(config_in(folder / "run"));
  run->event("joined", {{"member", 3}, {"host", "a \"host\"\n\x01"}});
  run->evaluation({10, 0.5, 1.25});
  run->event(RecoveryEvent::kKind, object_of(RecoveryEvent{full_summary().recoveries[0]}));
  StepRecord metric = metric_of(10);
  metric.digest = "abcd";
  metric.loss_scale = 1024;
  metric.skipped = true;
  metric.attempts = 2;
  run->metric(metric_of(9));
  run->metric(metric);

  const auto events = lines_of(run->path() + "/events.jsonl");
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].at("kind").as_string(), "started");
  EXPECT_GT(events[1].at("time").as_double(), 1.6e9);
  EXPECT_EQ(events[1].at("kind").as_string(), "joined");
  EXPECT_EQ(events[1].at("member").as_int64(), 3);
  EXPECT_EQ(events[1].at("host").as_string(), "a \"host\"\n\x01");
  EXPECT_EQ(events[2].at("kind").as_string(), "evaluation");
  EXPECT_EQ(events[2].at("test_top1").as_double(), 0.5);
  EXPECT_EQ(events[3].at("recovery").as_object().at("step_ms").as_double(), 41.125);

  const auto metrics = lines_of(run->path() + "/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].at("step").as_int64(), 9);
  EXPECT_EQ(metrics[0].at("loss").as_double(), 2.302585092994046);
  EXPECT_EQ(metrics[0].at("sample_hash").as_string(), "00ff");
  for (const char* sometimes : {"digest", "loss_scale", "skipped", "attempts"}) {
    EXPECT_FALSE(metrics[0].contains(sometimes));
  }
  EXPECT_EQ(metrics[1].at("digest").as_string(), "abcd");
  EXPECT_EQ(metrics[1].at("loss_scale").to_number<double>(), 1024);
  EXPECT_TRUE(metrics[1].at("skipped").as_bool());
  EXPECT_EQ(metrics[1].at("attempts").as_int64(), 2);
}

TEST(RunDirectory, RefusesAFolderOfRuns) {
  const test_support::TemporaryFolder folder;
  make(config_in(folder / "runs/a"));
  std::filesystem::create_directories(folder / "runs/notes");
  const auto mixed = RunDirectory::create(config_in(folder / "runs"));
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.error().code, Errc::kInvalidInput);
  EXPECT_THAT(mixed.error().detail,
              HasSubstr("runs is a folder of runs, such as " + (folder / "runs/a")));
  EXPECT_FALSE(std::filesystem::exists(folder / "runs/config.toml"));
  EXPECT_TRUE(RunDirectory::create(config_in(folder / "runs/b")).ok());
}

TEST(RunDirectory, RefusesAFolderThatHoldsARunUnlessItIsResumed) {
  const test_support::TemporaryFolder folder;
  JobConfig config = config_in(folder / "run");
  make(config);

  const auto again = RunDirectory::create(config);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Errc::kInvalidInput);
  EXPECT_THAT(again.error().detail, HasSubstr("already holds a run"));
  EXPECT_THAT(again.error().detail, HasSubstr("it has no checkpoint to continue from"));
  std::filesystem::create_directories(folder / "run/checkpoints/step-5");
  EXPECT_THAT(RunDirectory::create(config).error().detail,
              HasSubstr("continue it with --resume " + config.run_dir));

  config.resume = folder / "elsewhere";
  EXPECT_FALSE(RunDirectory::create(config).ok());
  config.resume = folder / "run2";  // another folder whose name begins the same
  EXPECT_FALSE(RunDirectory::create(config).ok());

  for (const std::string& resume : {folder / "run", folder / "run/checkpoints/step-5"}) {
    config.resume = resume;
    make(config);
  }
  EXPECT_EQ(lines_of(config.run_dir + "/events.jsonl").size(), 3u);
}

TEST(RunDirectory, KeepsThePlanThatTheJobWasStartedFrom) {
  const test_support::TemporaryFolder folder;
  JobConfig config = config_in(folder / "run");
  config.plan = folder / "job.plan.json";
  const std::string plan = plan_file_text(R"({"plan": "4 x small"})");
  ASSERT_TRUE(write_file_atomic(config.plan, plan).ok());
  make(config);
  EXPECT_EQ(text_of(plan_path(config.run_dir)), plan);
  EXPECT_THAT(text_of(config.run_dir + "/config.toml"), HasSubstr("plan = \"plan.json\""));

  config.resume = config.run_dir;
  for (const std::string& other : {std::string(), folder / "gone.plan.json"}) {
    config.plan = other;
    make(config);
    EXPECT_EQ(text_of(plan_path(config.run_dir)), plan);
    EXPECT_THAT(text_of(config.run_dir + "/config.toml"), HasSubstr("plan = \"plan.json\""));
  }
}

TEST(RunDirectory, RefusesADamagedPlanBeforeAnythingIsWritten) {
  const test_support::TemporaryFolder folder;
  JobConfig config = config_in(folder / "run");
  config.plan = folder / "job.plan.json";
  const std::string plan = plan_file_text(R"({"plan": "4 x small"})");
  std::string changed = plan;
  changed[changed.find('4')] = '5';
  const std::pair<std::string, std::string> bad[] = {
      {changed, "was changed after it was written"},
      {plan.substr(0, plan.size() / 2), "not JSON"},
      {"{\"format\": \"other\", \"version\": 1}", "not a plan of this version"}};
  for (const auto& [text, why] : bad) {
    ASSERT_TRUE(write_file_atomic(config.plan, text).ok());
    const auto refused = RunDirectory::create(config);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kInvalidInput);
    EXPECT_THAT(refused.error().detail, HasSubstr("plan " + config.plan + ": " + why));
    EXPECT_THAT(refused.error().detail, HasSubstr("`mayfly plan --write`"));
  }
  config.plan = folder / "gone.plan.json";
  EXPECT_THAT(RunDirectory::create(config).error().detail, HasSubstr("gone.plan.json"));
  EXPECT_FALSE(std::filesystem::exists(config.run_dir));
}

TEST(RunDirectory, AJobGoesOnWithOtherStores) {
  JobConfig asked;
  asked.store = "2GiB";
  asked.store_peers = true;
  asked.prepared_store = "1GiB";
  const Result<JobConfig> config = config_to_continue_with(asked, JobConfig());
  ASSERT_TRUE(config.ok()) << config.error().detail;
  EXPECT_TRUE(config.value().store_peers);
  asked.seed = 7;
  EXPECT_THAT(config_to_continue_with(asked, JobConfig()).error().detail, HasSubstr("has seed"));
}

TEST(RunDirectory, CutsALineThatACrashLeftTorn) {
  const test_support::TemporaryFolder folder;
  const JobConfig config = config_in(folder / "run");
  make(config)->event("paused", {});
  const std::string whole = text_of(config.run_dir + "/events.jsonl");
  std::ofstream(config.run_dir + "/events.jsonl", std::ios::app) << "{\"time\": 1, \"ki";
  Result<std::unique_ptr<RunDirectory>> again = RunDirectory::reopen(config);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(text_of(config.run_dir + "/events.jsonl"), whole);
  again.value()->event("resumed", {});
  EXPECT_EQ(lines_of(config.run_dir + "/events.jsonl").size(), 3u);
}

double last_t(const std::string& path) {
  return lines_of(path).back().at("t").to_number<double>();
}

TEST(RunDirectory, EveryLineHasATimeOnOneAxis) {
  const test_support::TemporaryFolder folder;
  const auto run = make(config_in(folder / "run"));
  const std::string events = run->path() + "/events.jsonl";
  EXPECT_LT(last_t(events), 60);
  const Instant later = monotonic_now() + seconds(100);
  run->event("paused", {}, later);
  EXPECT_DOUBLE_EQ(last_t(events), run->seconds_at(later));
  run->event("lost", {}, later - seconds(50));  // the event is reported late
  EXPECT_DOUBLE_EQ(last_t(events), run->seconds_at(later));
  StepRecord metric = metric_of(1);
  metric.t = 99.5;
  run->metric(metric);
  EXPECT_DOUBLE_EQ(last_t(run->path() + "/metrics.jsonl"), 99.5);
  MemberRecord member;
  member.t = 3;
  member.host = "a";
  run->members({member});
  EXPECT_EQ(lines_of(run->path() + "/members.jsonl")[0].at("host").as_string(), "a");
}

// The wall clock may be set back between the two processes.
TEST(RunDirectory, TheAxisGoesOnInTheNextProcess) {
  const test_support::TemporaryFolder folder;
  const std::string path = folder / "run";
  EXPECT_EQ(seconds_on_record(path, 1000), 0);
  std::filesystem::create_directory(path);
  const auto append = [&path](const std::string& file, const std::string& text) {
    std::ofstream(path + "/" + file, std::ios::app) << text;
  };
  append("events.jsonl", "{\"time\": 1000, \"t\": 0, \"kind\": \"started\"}\n");
  append("events.jsonl", "{\"time\": 1040, \"t\": 40, \"kind\": \"paused\"}\n{\"time\": 2");
  EXPECT_DOUBLE_EQ(seconds_on_record(path, 1050), 50);
  EXPECT_DOUBLE_EQ(seconds_on_record(path, 900), 40);
  append("events.jsonl", "000, \"t\": 70, \"kind\": \"resumed\"}\n");
  EXPECT_DOUBLE_EQ(seconds_on_record(path, 2005), 75);
  append("metrics.jsonl", "{\"step\": 1, \"t\": 80.5}\n");
  EXPECT_DOUBLE_EQ(seconds_on_record(path, 2005), 80.5);
}

// Method: a limit on file size makes every write beyond it fail, as on a full disk.
TEST(RunDirectory, GoesOnWhenTheDiskIsFullAndLeavesWholeLines) {
  const test_support::TemporaryFolder folder;
  const auto run = make(config_in(folder / "run"));
  run->metric(metric_of(1));
  const auto whole = static_cast<rlim_t>(text_of(run->path() + "/metrics.jsonl").size());

  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = whole + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  run->metric(metric_of(2));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  run->metric(metric_of(3));

  const auto metrics = lines_of(run->path() + "/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[1].at("step").as_int64(), 3);
}

TEST(Summary, AsJsonHoldsEveryPromisedField) {
  const test_support::TemporaryFolder folder;
  const auto run = make(config_in(folder / "run"));
  ASSERT_TRUE(run->summary(full_summary()).ok());
  const auto json = boost::json::parse(text_of(run->path() + "/summary.json")).as_object();
  for (const char* name : {"steps", "samples", "final_digest", "test_top1", "images_per_second",
                           "membership_changes", "recoveries", "reduction", "backend", "device",
                           "seed", "isa", "conv_kernels", "lost_seconds"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(json.at("test_top1").as_double(), 0.8162);
  EXPECT_EQ(json.at("images_per_second").as_double(), 932.25);
  const auto& recovery = json.at("recoveries").as_array().at(0).as_object();
  EXPECT_EQ(recovery.at("cause").as_string(), "lost");
  EXPECT_EQ(recovery.at("told_ms").as_double(), 0.25);
  EXPECT_EQ(recovery.at("members").as_array().at(0).as_int64(), 2);
}

TEST(Summary, OfAJobWithParameterServersNamesTheirPolicy) {
  Summary summary = full_summary();
  EXPECT_THAT(to_text(summary), HasSubstr("exact sum over tcp"));
  summary.sync = "bsp:25%,asp";
  EXPECT_THAT(to_text(summary), HasSubstr("seed 1, parameter servers, bsp:25%,asp"));
}

TEST(Summary, AsTextSaysWhatPeopleAskFor) {
  const std::string text = to_text(full_summary());
  for (const char* part : {"Done: 3,910 steps", "932 images/s", "81.62 %", "41.1 ms", "lost",
                           "0123456789abcdef0123456789abcdef", "runs/x/checkpoints/step-3910",
                           "workers       2 on node-a, 1 on node-b", "cost          0.4211",
                           "lost time     recoveries 1.25 s\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Json, NumbersReadBackExactly) {
  for (const double number : {0.1, 1e-300, 3.0, -2.5e17, 1.0 / 3.0}) {
    EXPECT_EQ(json::parse(json_text(number)).to_number<double>(), number);
  }
  EXPECT_EQ(json_text(0.5), "0.5");
  EXPECT_EQ(json_text(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(json_text(18446744073709551615u), "18446744073709551615");
}

TEST(Json, ATextThatIsNoUtf8ReadsBackWithoutWhatIsNone) {
  const std::string cut_off = "of b\xc3\xa9zier \xc3";
  EXPECT_EQ(json::parse(json_text(json::string(cut_off))).as_string(), "of b??zier ?");
  EXPECT_EQ(json::parse(json_text("of b\xc3\xa9zier")).as_string(), "of b\xc3\xa9zier");
}

TEST(Json, ARecordReadsBackUnlessItLacksAField) {
  const Summary summary = full_summary();
  const json::object object = object_of(summary);
  EXPECT_EQ(object_of(record_of<Summary>(object)), object);
  EXPECT_FALSE(object.contains("skipped_steps"));
  EXPECT_TRUE(object_of(Summary{}).at("cost").is_null());
  json::object recovery = object_of(summary.recoveries[0]);
  recovery.erase("cause");
  EXPECT_FALSE(with_object("not one", json_text(recovery), [](const json::object& o) {
                 (void)record_of<RecoveryRecord>(o);
               }).ok());
}

TEST(Json, LinesAreReadWithoutTheWholeFileInMemory) {
  const test_support::TemporaryFolder folder;
  const std::string path = folder / "lines.jsonl";
  constexpr std::uint64_t kBegin = std::uint64_t{5} << 30;  // after a hole, which takes no room
  constexpr int kLines = 100'000;
  std::ofstream(path).close();
  std::filesystem::resize_file(path, kBegin - 1);
  {
    std::ofstream file(path, std::ios::app);
    file << '\n';
    for (int i = 0; i < kLines; ++i) {
      file << "{\"number\": " << i << ", \"text\": \"" << std::string(i % 50, 'a') << "\"}\n";
    }
    file << "{\"number\": 1";  // torn
  }
  int read = 0;
  const auto count = [&read](const json::object& line) {
    EXPECT_EQ(number_or(line, "number", -1), read);
    ++read;
  };
  const Result<void> done = for_each_line(path, kBegin, count);
  EXPECT_TRUE(done.ok()) << done.error().detail;
  EXPECT_EQ(read, kLines);
}

}  // namespace
}  // namespace mayfly::engine
