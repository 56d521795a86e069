// The newest checkpoint is damaged on the disk: which checkpoint a resumed job begins with, and
// which one a worker receives.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/net/sockets.hpp"
#include "elastic/net/frame.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/processes/coordinator_process.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/state/starting_state.hpp"
#include "engine/transfers/checkpoint_receiver.hpp"
#include "tests/unit/engine/nobody_listens.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Verdict = TransferAnswer::Verdict;

/// A run directory with checkpoints of the steps 10, 20 and 30.
class DamagedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    config.data = "procedural:64";
    config.global_batch = 16;
    config.microbatch = 4;
    config.steps = 40;
    config.run_dir = folder / "run";
    job = prepare_job(config).value();
    for (const std::uint64_t step : {10, 20, 30}) {
      ASSERT_TRUE(save_checkpoint(checkpoints(), files(step), Step{step}, 3).ok());
    }
  }

  [[nodiscard]] std::string checkpoints() const { return config.run_dir + "/checkpoints"; }
  [[nodiscard]] std::string folder_of_step(std::uint64_t step) const {
    return folder_of_checkpoint(checkpoints(), Step{step});
  }
  [[nodiscard]] nn::CheckpointFiles files(std::uint64_t step) const {
    nn::ModelState state = starting_state(*job, layout_of(job->model)).value().state;
    state.committed = Step{step};
    return nn::encode_checkpoint(job->model, state, job->config.seed, job->fingerprint);
  }
  void damage(std::uint64_t step) const {
    std::fstream file(folder_of_step(step) + "/" + nn::kModelFile,
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const auto last = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }
  /// Matches a text that names the damaged checkpoint and the one that is taken instead.
  static auto says_that(std::uint64_t taken, std::uint64_t damaged) {
    return AllOf(HasSubstr("step-" + std::to_string(damaged) + ": model.safetensors: hash"),
                 HasSubstr("that of step " + std::to_string(taken) + " is used instead"));
  }

  const test_support::TemporaryFolder folder;
  JobConfig config;
  std::unique_ptr<Job> job;
};

TEST_F(DamagedCheckpoint, ANewestIntactOneIsLoadedAsItIs) {
  const LoadedCheckpoint loaded = load_intact_checkpoint(config.run_dir).value();
  EXPECT_EQ(loaded.path, folder_of_step(30));
  EXPECT_EQ(loaded.passed_over, "");
}

TEST_F(DamagedCheckpoint, TheNewestIntactOneIsTakenUnlessAStepIsAskedFor) {
  damage(30);
  damage(20);
  for (const std::string& place : {config.run_dir, checkpoints()}) {
    const Result<LoadedCheckpoint> loaded = load_intact_checkpoint(place);
    ASSERT_TRUE(loaded.ok()) << loaded.error().detail;
    EXPECT_EQ(loaded.value().path, folder_of_step(10));
    EXPECT_THAT(loaded.value().passed_over, says_that(10, 30));
  }
  const Result<LoadedCheckpoint> asked_for = load_intact_checkpoint(folder_of_step(30));
  ASSERT_FALSE(asked_for.ok());
  EXPECT_EQ(asked_for.error().code, Errc::kCorrupt);
  damage(10);
  const Result<LoadedCheckpoint> none = load_intact_checkpoint(config.run_dir);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().detail, HasSubstr("step-30"));
}

// A run that went back to an earlier step still has the later checkpoints of an earlier part.
TEST_F(DamagedCheckpoint, NoneOfALaterStepThanTheLatestIsTaken) {
  ASSERT_TRUE(name_latest(checkpoints(), Step{20}).ok());
  damage(20);
  EXPECT_EQ(load_intact_checkpoint(config.run_dir).value().path, folder_of_step(10));
  EXPECT_EQ(set_damaged_aside(checkpoints()).value().path, folder_of_step(10));
  EXPECT_EQ(load_checkpoint(config.run_dir).value().path, folder_of_step(10));
  EXPECT_THAT(steps_of_checkpoints(checkpoints()), ElementsAre(30, 10));
}

TEST_F(DamagedCheckpoint, OneThatWasSetAsideGoesWithTheNextSave) {
  damage(30);
  EXPECT_THAT(set_damaged_aside(checkpoints()).value().passed_over, says_that(20, 30));
  EXPECT_EQ(set_damaged_aside(checkpoints()).value().passed_over, "");
  EXPECT_TRUE(std::filesystem::exists(checkpoints() + "/.step-30.damaged"));
  ASSERT_TRUE(save_checkpoint(checkpoints(), files(30), Step{30}, 3).ok());
  EXPECT_FALSE(std::filesystem::exists(checkpoints() + "/.step-30.damaged"));
  EXPECT_EQ(load_intact_checkpoint(config.run_dir).value().path, folder_of_step(30));
}

TEST_F(DamagedCheckpoint, AResumedJobBeginsWithTheNewestIntactOne) {
  damage(30);
  config.resume = config.run_dir;
  test_support::KeepsLines listener;
  const auto started =
      CoordinatorProcess::start(config, listener, CoordinatorProcess::Unfinished::kRefuse,
                                [](std::uint32_t) -> Result<std::string> { return std::string(); });
  ASSERT_TRUE(started.ok()) << started.error().detail;
  EXPECT_EQ(started.value()->config().resume, folder_of_step(20));
  EXPECT_EQ(std::ranges::count_if(listener.lines,
                                  [](const std::string& line) {
                                    return line.find("is used instead") != std::string::npos;
                                  }),
            1)
      << "one line";
  EXPECT_THAT(listener.lines, ::testing::Contains(says_that(20, 30)));
  EXPECT_THAT(steps_of_checkpoints(checkpoints()), ElementsAre(20, 10))
      << "that of step 30 can be taken again";
}

/// Workers that send checkpoints or request one after all members were lost at step 35.
class DamagedAtReceiver : public DamagedCheckpoint {
 protected:
  TransferAnswer ask(const TransferRequest& request) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    receiver->take(UniqueFd(ends[1]), "host-b");
    const UniqueFd own(ends[0]);
    EXPECT_TRUE(elastic::receive_message(own.get(), monotonic_now() + seconds(60)).ok());
    EXPECT_TRUE(send_frame(own.get(), encode(request)).ok());
    return decode_transfer_answer(receive_frame(own.get()).value()).value();
  }
  TransferAnswer ask_for_state() {
    TransferRequest request;
    request.kind = TransferRequest::Kind::kQuestion;
    return ask(request);
  }
  TransferAnswer bring(std::uint64_t step) {
    TransferRequest request;
    request.offer = offer_of(Step{step}, files(step));
    return ask(request);
  }
  void open() {
    CheckpointReceiver::Hooks hooks;
    hooks.on_received = [](const ReceivedCheckpoint&) {};
    hooks.on_refused = [this](const std::string& why) {
      const std::lock_guard lock(mutex);
      refusals.push_back(why);
    };
    hooks.step_without_holder = [] { return std::optional(Step{35}); };
    hooks.step_of_holders = [] { return std::optional<Step>(); };
    receiver.emplace(*job, StartingPoint(), Step{30}, "", std::move(hooks));
  }

  std::mutex mutex;
  std::vector<std::string> refusals;  // guarded by mutex
  std::optional<CheckpointReceiver> receiver;
};

TEST_F(DamagedAtReceiver, AWorkerGetsTheNewestIntactOneAndWhatItRedoesIsTaken) {
  open();
  damage(30);
  for (int worker = 0; worker < 2; ++worker) {
    const TransferAnswer answer = ask_for_state();
    ASSERT_EQ(answer.verdict, Verdict::kTransfer);
    EXPECT_EQ(answer.offer.step, Step{20});
  }
  EXPECT_EQ(bring(25).verdict, Verdict::kTransfer) << "it is no step before the newest one";
  EXPECT_EQ(bring(30).verdict, Verdict::kTransfer) << "the damaged one does not stay";
  receiver.reset();
  EXPECT_THAT(refusals, ElementsAre(says_that(20, 30))) << "said once";
}

TEST_F(DamagedAtReceiver, NothingIsBegunAgainOverCheckpointsThatAreAllDamaged) {
  open();
  for (const std::uint64_t step : {10, 20, 30}) {
    damage(step);
  }
  const TransferAnswer answer = ask_for_state();
  EXPECT_EQ(answer.verdict, Verdict::kRefused);
  EXPECT_THAT(answer.text, AllOf(HasSubstr("no member has the job's state"), HasSubstr("step-30")));
}

}  // namespace
}  // namespace mayfly::engine
