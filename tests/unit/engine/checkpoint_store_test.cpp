#include "engine/run/checkpoint_store.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <utility>

#include "base/net/addresses.hpp"
#include "base/unique_fd.hpp"
#include "elastic/net/coordinator_server.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "engine/transfers/checkpoint_uploader.hpp"
#include "engine/transfers/checkpoint_writer.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class CheckpointStore : public ::testing::Test {
 protected:
  /// The files of an untrained network that claims to have committed `step`.
  nn::CheckpointFiles files_at(std::uint64_t step) {
    nn::ModelState state = nn::make_initial_state(model_, 7, 0, 0);
    state.committed = Step{step};
    return nn::encode_checkpoint(model_, state, 7, {{"model", "resnet20"}});
  }
  std::string save(std::uint64_t step, std::uint32_t keep = 3) {
    Result<std::string> saved = save_checkpoint(folder_.path(), files_at(step), Step{step}, keep);
    EXPECT_TRUE(saved.ok()) << saved.error().detail;
    return saved.ok() ? saved.value() : "";
  }
  [[nodiscard]] std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::uint64_t step_loaded(const std::string& path) {
    const Result<LoadedCheckpoint> loaded = load_checkpoint(path);
    EXPECT_TRUE(loaded.ok()) << loaded.error().detail;
    return loaded.ok() ? value(loaded.value().info.committed) : 0;
  }
  static Error load_error(const std::string& path) {
    const Result<LoadedCheckpoint> loaded = load_checkpoint(path);
    EXPECT_FALSE(loaded.ok());
    return loaded.ok() ? Error{Errc::kIo, "loaded"} : loaded.error();
  }

  const test_support::TemporaryFolder folder_;
  const nn::Model model_ = nn::make_model("resnet20", 10).value();
};

TEST_F(CheckpointStore, LoadsWhatWasSaved) {
  const std::string path = save(40);
  EXPECT_EQ(path, folder_ / "step-40");
  const Result<LoadedCheckpoint> loaded = load_checkpoint(path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().detail;
  EXPECT_EQ(loaded.value().files, files_at(40));
  EXPECT_EQ(loaded.value().info.model, "resnet20");
  const Result<nn::ModelState> state = nn::decode_checkpoint(model_, loaded.value().files);
  ASSERT_TRUE(state.ok()) << state.error().detail;
  EXPECT_EQ(nn::digest_of(state.value()), loaded.value().info.digest);
}

TEST_F(CheckpointStore, FindsTheLatestOfAFolderAndOfARunDirectory) {
  save(5);
  save(12);
  save(9);  // saved last, so it is the latest, whatever its number
  EXPECT_EQ(step_loaded(folder_.path()), 9u);

  const test_support::TemporaryFolder run;
  std::filesystem::create_directory_symlink(folder_.path(), run / "checkpoints");
  EXPECT_EQ(step_loaded(run.path()), 9u);

  std::filesystem::remove(folder_ / "latest");
  EXPECT_EQ(step_loaded(folder_.path()), 12u);
}

TEST_F(CheckpointStore, KeepsTheNewestAndRemovesLeftovers) {
  std::filesystem::create_directory(folder_ / ".step-3.tmp");
  for (const std::uint64_t step : {1, 2, 3, 4}) {
    save(step, 2);
  }
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-3", "step-4"}));
  save(2, 1);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-2"}));
}

/// NFS does not lock folders between hosts, and other file systems do not lock them at all.
TEST_F(CheckpointStore, OneThatAnotherProcessWritesIsLeftAloneUntilItIsOld) {
  const auto write = [this](const std::string& name) {
    std::filesystem::create_directory(folder_ / name);
    std::ofstream(folder_ / name + "/" + nn::kManifestFile) << "{}";
  };
  const std::string living = ".step-5.tmp-" + host_name() + "-1";
  write(".step-4.tmp-elsewhere-7");
  write(living);
  write(".step-5.tmp-" + host_name() + "-2000000000");  // the system has no such process
  save(4);
  EXPECT_THAT(entries(),
              UnorderedElementsAre(".step-4.tmp-elsewhere-7", living, "latest", "step-4"));
  save(5);
  EXPECT_THAT(entries(), UnorderedElementsAre(living, "latest", "step-4", "step-5"));
  save(6);
  EXPECT_THAT(entries(), UnorderedElementsAre("latest", "step-4", "step-5", "step-6"));
}

/// As of a job that was resumed from step 4 in the directory in which it had reached step 7.
TEST_F(CheckpointStore, ThoseOfAPartThatIsComputedAgainDoNotReplaceThoseOfThePresentPart) {
  save(4);
  save(6);
  save(7);
  save(5);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-4", "step-5", "step-7"}));
  save(6);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-5", "step-6", "step-7"}));
  save(8, 2);
  save(5, 2);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-5", "step-8"}));
  save(6, 2);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-5", "step-6"}));
}

/// As of a job that keeps one checkpoint, which it removes while others read it.
TEST_F(CheckpointStore, AReaderNeverSeesAPartOfOneThatIsBeingRemoved) {
  save(1, 1);
  std::atomic<bool> is_over = false;
  std::thread job([&] {
    for (std::uint64_t step = 2; step <= 16; ++step) {
      save(step, 1);
    }
    is_over = true;
  });
  while (!is_over) {
    const Result<LoadedCheckpoint> latest = load_intact_checkpoint(folder_.path());
    EXPECT_TRUE(latest.ok()) << latest.error().detail;
    for (const std::uint64_t step : steps_of_checkpoints(folder_.path())) {
      const Result<LoadedCheckpoint> one =
          load_checkpoint(folder_of_checkpoint(folder_.path(), Step{step}));
      EXPECT_TRUE(one.ok() || one.error().code == Errc::kNotFound) << one.error().detail;
    }
  }
  job.join();
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-16"}));
}

TEST_F(CheckpointStore, SavesAStepAgain) {
  save(6);
  save(6);
  EXPECT_EQ(step_loaded(folder_.path()), 6u);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-6"}));
}

/// On file systems that cannot exchange two folders, the old folder is moved away before the new
/// one gets its name.
TEST_F(CheckpointStore, OneWhoseWriterDiedWhileItWasReplacedIsPutBack) {
  const auto crash = [this](const char* step) {
    std::filesystem::rename(folder_ / step, folder_ / "." + step + ".old");
  };
  save(5);
  const std::string path = save(6);
  crash("step-6");
  EXPECT_EQ(step_loaded(folder_.path()), 6u);
  crash("step-6");
  EXPECT_EQ(step_loaded(path), 6u);
  crash("step-6");
  save(7);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-5", "step-6", "step-7"}));
  crash("step-7");
  save(7);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-5", "step-6", "step-7"}));
}

// Method: a limit on file size makes the large file's write fail half-way, as on a full disk.
TEST_F(CheckpointStore, OnAFullDiskKeepsTheLastGoodOneAndNothingPartial) {
  save(1);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 100'000;
  const nn::CheckpointFiles files = files_at(2);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<std::string> saved = save_checkpoint(folder_.path(), files, Step{2}, 3);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);

  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, Errc::kIo);
  EXPECT_THAT(saved.error().detail, HasSubstr("checkpoint of step 2 not saved"));
  EXPECT_EQ(step_loaded(folder_.path()), 1u);
  EXPECT_EQ(entries(), (std::vector<std::string>{"latest", "step-1"}));
}

/// Goal: a process that the user's program forks while a checkpoint is being saved does not prevent
/// later checkpoints.
/// Method: the test holds the lock of the folder. Once the saving thread has opened the folder and
/// waits for the lock, a child is forked, which has a copy of the descriptor.
TEST_F(CheckpointStore, AProcessThatIsForkedDuringASaveDoesNotHoldTheLock) {
  const auto open_folder = [this] {
    return UniqueFd(::open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  };
  const auto times_open = [folder = std::filesystem::canonical(folder_.path())] {
    std::size_t times = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code is_closed;
      times += std::filesystem::read_symlink(entry.path(), is_closed) == folder ? 1 : 0;
    }
    return times;
  };
  const UniqueFd held = open_folder();
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  std::thread saving([this] { save(1); });
  while (times_open() < 2) {
    std::this_thread::yield();
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(120);
    ::pause();
    ::_exit(0);
  }
  EXPECT_EQ(::flock(held.get(), LOCK_UN), 0);
  saving.join();
  const UniqueFd next = open_folder();
  EXPECT_EQ(::flock(next.get(), LOCK_EX | LOCK_NB), 0) << "the next save would wait for the child";
  ASSERT_GT(child, 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(CheckpointStore, NamesWhatIsMissingOrTorn) {
  EXPECT_EQ(load_error(folder_ / "nothing").code, Errc::kNotFound);
  EXPECT_EQ(load_error(folder_.path()).code, Errc::kNotFound);

  const std::string path = save(3);
  std::filesystem::remove(path + "/" + nn::kModelFile);
  EXPECT_EQ(load_error(path).code, Errc::kCorrupt);
  EXPECT_THAT(load_error(path).detail, HasSubstr(nn::kModelFile));

  save(3);
  std::filesystem::resize_file(path + "/" + nn::kManifestFile, 20);
  EXPECT_EQ(load_error(path).code, Errc::kCorrupt);
  std::filesystem::remove(path + "/" + nn::kManifestFile);
  EXPECT_THAT(load_error(path).detail, HasSubstr(nn::kManifestFile));

  std::ofstream(folder_ / "latest") << "../../etc";
  EXPECT_EQ(load_error(folder_.path()).code, Errc::kCorrupt);
}

TEST_F(CheckpointStore, ATornTensorFileIsFoundWhenItIsDecoded) {
  const std::string path = save(3);
  const std::string file = path + "/" + nn::kModelFile;
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Result<LoadedCheckpoint> loaded = load_checkpoint(path);
  ASSERT_TRUE(loaded.ok());
  const Result<nn::ModelState> state = nn::decode_checkpoint(model_, loaded.value().files);
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.error().code, Errc::kCorrupt);
  EXPECT_THAT(state.error().detail, HasSubstr(nn::kModelFile));
}

TEST(UploadPace, IsAnEighthOfTheIntervalWithinBounds) {
  constexpr double kMiB = 1 << 20;
  EXPECT_DOUBLE_EQ(upload_bytes_per_second(200 << 20, seconds(320)), 5 * kMiB);
  EXPECT_DOUBLE_EQ(upload_bytes_per_second(200 << 20, seconds(1)), 64 * kMiB);
  EXPECT_DOUBLE_EQ(upload_bytes_per_second(200 << 20, Duration{}), 64 * kMiB);
  EXPECT_DOUBLE_EQ(upload_bytes_per_second(1 << 20, seconds(86400)), 2 * kMiB);
}

/// wait() calls its function repeatedly, so that the waiting thread can show that it is alive.
TEST_F(CheckpointStore, WhoWaitsForAnUploadIsAskedAgainAndAgain) {
  CheckpointUploader uploader({}, Bytes{}, 1);
  uploader.upload(Step{10}, files_at(10));
  int asked = 0;
  const Result<void> home = uploader.wait(seconds(60), [&asked] { return ++asked == 3; });
  ASSERT_FALSE(home.ok());
  EXPECT_EQ(home.error().code, Errc::kAborted);
  EXPECT_EQ(asked, 3);
}

/// A coordinator that already has the first checkpoint that it is offered, unless `has_one`, and
/// refuses all others.
class HasOneCheckpoint final : public elastic::CoordinatorObserver {
 public:
  explicit HasOneCheckpoint(bool has_one = false) : has_one_(has_one) {}

  void on_note(Instant, const elastic::coordinator_effect::Note&) override {}
  void on_view(Instant, const elastic::View&) override {}
  void on_recovery(const elastic::Recovery&) override {}
  void on_report(MemberId, ByteSpan, Instant) override {}
  elastic::CommandReply on_command(const elastic::Command&) override { return {}; }
  void on_ended(elastic::Outcome, const std::string&) override {}
  void on_transfer(UniqueFd socket, std::string) override {
    const int fd = socket.get();
    EXPECT_TRUE(elastic::send_message(fd, elastic::Welcome{}, transfer_deadline()).ok());
    EXPECT_TRUE(receive_frame(fd, kRequestBytesMax).ok());
    TransferAnswer answer;
    if (std::exchange(has_one_, true)) {
      answer.verdict = TransferAnswer::Verdict::kRefused;
      answer.text = "the disk is full";
    }
    EXPECT_TRUE(send_frame(fd, encode(answer)).ok());
  }

 private:
  bool has_one_;  // used on the server's thread
};

TEST_F(CheckpointStore, OneOfAStepThatIsHomeIsNotHomeItself) {
  HasOneCheckpoint coordinator;
  elastic::CoordinatorServerOptions options;
  const Bytes token = elastic::make_token();
  options.token = token;
  options.begins_later = true;  // the test has no members
  const auto server = elastic::start_coordinator(std::move(options), coordinator);
  ASSERT_TRUE(server.ok()) << server.error().detail;
  CheckpointUploader uploader({server.value()->endpoint()}, token, 1);
  const auto never = [] { return false; };
  uploader.upload(Step{10}, files_at(10));
  const Result<void> first = uploader.wait(seconds(60), never);
  ASSERT_TRUE(first.ok()) << first.error().detail;
  uploader.upload(Step{10}, files_at(10));  // as if the job had fallen back
  const Result<void> second = uploader.wait(seconds(60), never);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::kRefused);
  EXPECT_EQ(second.error().detail, "the disk is full");
}

// A worker of an earlier job looks for its coordinator at this address, with the same token. Its
// checkpoint of a later step would pass for the newest one, and those of the job would come too
// late.
TEST_F(CheckpointStore, ACoordinatorTakesNoneOfAnotherJob) {
  HasOneCheckpoint observer;
  elastic::CoordinatorServerOptions options;
  const Bytes token = elastic::make_token();
  options.token = token;
  options.core.identity = 7;
  const auto server = elastic::start_coordinator(std::move(options), observer);
  ASSERT_TRUE(server.ok()) << server.error().detail;
  for (const std::uint64_t job : {8, 7}) {
    CheckpointUploader uploader({server.value()->endpoint()}, token, job);
    uploader.upload(Step{10}, files_at(10));
    const Result<void> home = uploader.wait(seconds(60), [] { return false; });
    EXPECT_EQ(home.ok(), job == 7);
    if (!home.ok()) {
      EXPECT_EQ(home.error().code, Errc::kRefused);
      EXPECT_EQ(home.error().detail, "it leads another job");
    }
  }
}

TEST_F(CheckpointStore, IsHomeIfTheLastCoordinatorTakesIt) {
  const Bytes token = elastic::make_token();
  HasOneCheckpoint full(true);
  HasOneCheckpoint in_charge;
  const auto start = [&token](HasOneCheckpoint& coordinator) {
    elastic::CoordinatorServerOptions options;
    options.token = token;
    options.begins_later = true;
    return elastic::start_coordinator(std::move(options), coordinator);
  };
  const auto first = start(full);
  const auto second = start(in_charge);
  ASSERT_TRUE(first.ok() && second.ok());
  CheckpointUploader uploader({first.value()->endpoint(), second.value()->endpoint()}, token, 1);
  uploader.upload(Step{10}, files_at(10));
  const Result<void> home = uploader.wait(seconds(60), [] { return false; });
  EXPECT_TRUE(home.ok()) << home.error().detail;
}

TEST_F(CheckpointStore, AnOlderOneThatWaitsIsNotWrittenAfterTheLast) {
  Job job;
  for (std::uint64_t first = 10; first < 200; first += 10) {
    {
      CheckpointWriter writer(
          job, folder_.path(), [](const CheckpointRecord&) {}, nullptr);
      nn::CheckpointFiles older = files_at(first);
      nn::CheckpointFiles last = files_at(first + 1);
      writer.write_later(Step{first}, std::move(older));  // the thread has to wake up first
      EXPECT_TRUE(writer.write_now(Step{first + 1}, std::move(last)));
    }
    EXPECT_EQ(step_loaded(folder_.path()), first + 1);
  }
}

TEST_F(CheckpointStore, TheSameStepIsWrittenAgainInAnotherState) {
  const Job job;
  CheckpointWriter writer(
      job, folder_.path(), [](const CheckpointRecord&) {}, nullptr);
  nn::ModelState redone = nn::make_initial_state(model_, 8, 0, 0);
  redone.committed = Step{10};
  EXPECT_TRUE(writer.write_now(Step{10}, files_at(10)));
  EXPECT_TRUE(writer.write_now(Step{10}, nn::encode_checkpoint(model_, redone, 8, {})));
  const Result<LoadedCheckpoint> loaded = load_checkpoint(folder_.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().detail;
  EXPECT_EQ(loaded.value().info.digest, nn::digest_of(redone));
}

}  // namespace
}  // namespace mayfly::engine
