#include "engine/transfers/evaluation_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/bytes.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/run_history.hpp"
#include "engine/run/summary.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "nn/model_state.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::ElementsAre;

/// A run directory, the coordinator's service, and evaluators that return a fixed result.
class EvaluationsTest : public ::testing::Test {
 protected:
  EvaluationsTest() { std::filesystem::create_directory(run_ / "checkpoints"); }

  void save(std::uint64_t step, std::uint64_t seed = 7) {
    nn::ModelState state = nn::make_initial_state(model_, seed, 0, 0);
    state.committed = Step{step};
    ASSERT_TRUE(save_checkpoint(run_ / "checkpoints", nn::encode_checkpoint(model_, state, 7, {}),
                                Step{step}, 10)
                    .ok());
  }

  struct Evaluator {
    std::array<int, 2> ends{-1, -1};
    std::atomic<bool> leaves = false;
    std::atomic<bool> hangs = false;
    std::atomic<bool> is_measuring = false;
    std::vector<std::uint64_t> measured;
    Result<std::string> end{std::string()};
    std::thread thread;
  };

  /// Starts an evaluator on the server of this name.
  Evaluator& start(const std::string& server) {
    Evaluator& evaluator = evaluators_.emplace_back();
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, evaluator.ends.data()), 0);
    service_.take(UniqueFd(evaluator.ends[0]), "host", server);
    evaluator.thread = std::thread([&evaluator] {
      evaluator.end = serve_evaluations(
          evaluator.ends[1],
          [&evaluator](Step step, const nn::CheckpointFiles& files) {
            EXPECT_EQ(files.size(), 3U);
            evaluator.is_measuring = true;
            while (evaluator.hangs) {
              std::this_thread::sleep_for(milliseconds(1));
            }
            evaluator.measured.push_back(value(step));
            Evaluation evaluation;
            evaluation.samples = 100;
            evaluation.test_top1 = 0.5;
            return evaluation;
          },
          [&evaluator] { return evaluator.leaves.load(); });
      ::shutdown(evaluator.ends[1], SHUT_RDWR);
    });
    return evaluator;
  }

  template <typename Condition>
  static void wait_until(const Condition& holds) {
    const Instant deadline = monotonic_now() + seconds(60);
    while (!holds() && monotonic_now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    ASSERT_TRUE(holds());
  }

  std::vector<std::uint64_t> steps_on_record() {
    std::vector<std::uint64_t> steps;
    for (const Evaluation& one : read_evaluations(run_.path())) {
      steps.push_back(one.step);
    }
    return steps;
  }

  void TearDown() override {
    for (Evaluator& evaluator : evaluators_) {
      evaluator.hangs = false;
    }
    service_.close();
    for (Evaluator& evaluator : evaluators_) {
      evaluator.thread.join();
      ::close(evaluator.ends[1]);
    }
  }

  const test_support::TemporaryFolder run_;
  const nn::Model model_ = nn::make_model("resnet20", 10).value();
  std::atomic<bool> is_in_charge_ = true;
  std::atomic<int> lost_ = 0;
  std::list<Evaluator> evaluators_;
  EvaluationService service_{
      run_.path(),
      {[this] { return is_in_charge_.load(); }, [](const EvaluatorStatus&) {},
       [this](const EvaluatorStatus&, const std::string& why) { lost_ += why.empty() ? 0 : 1; },
       [](const Evaluation&) {}}};
};

TEST_F(EvaluationsTest, MeasuresEachCheckpointOnceAndLeavesAfterTheLast) {
  save(2);
  Evaluator& evaluator = start("server-1");
  wait_until([&] { return steps_on_record().size() == 1; });
  save(4);
  wait_until([&] { return steps_on_record().size() == 2; });
  save(6);
  wait_until([&] { return !service_.drain(); });
  EXPECT_THAT(steps_on_record(), ElementsAre(2, 4, 6)) << "the last one is not missed";
  EXPECT_THAT(evaluator.measured, ElementsAre(2, 4, 6));
  EXPECT_EQ(read_evaluations(run_.path()).front().evaluator, "server-1");
  EXPECT_EQ(lost_, 0);
}

TEST_F(EvaluationsTest, ALostEvaluatorsCheckpointIsMeasuredByAnother) {
  Evaluator& first = start("server-1");
  first.hangs = true;
  save(2);
  wait_until([&] {
    const std::vector<EvaluatorStatus> all = service_.evaluators();
    return all.size() == 1 && all.front().measures == 2;
  });
  Evaluator& second = start("server-2");
  ::shutdown(first.ends[1], SHUT_RDWR);  // the first evaluator's machine fails
  wait_until([&] { return !steps_on_record().empty(); });
  EXPECT_THAT(second.measured, ElementsAre(2));
  EXPECT_EQ(read_evaluations(run_.path()).front().evaluator, "server-2");
  EXPECT_EQ(lost_, 1);
}

TEST_F(EvaluationsTest, ContinuesWhereAnEarlierCoordinatorStopped) {
  save(2);
  save(4);
  Evaluation earlier;
  earlier.step = 2;
  earlier.manifest = checkpoints_to_measure(run_.path(), {}).front().manifest;
  std::ofstream(run_ / "evaluations.jsonl") << to_json(earlier) << "\n{\"torn\n";
  Evaluator& evaluator = start("server-1");
  wait_until([&] { return !service_.drain(); });
  EXPECT_THAT(evaluator.measured, ElementsAre(4));
}

TEST_F(EvaluationsTest, AnotherStateOfTheSameStepIsMeasuredToo) {
  save(2);
  Evaluator& evaluator = start("server-1");
  wait_until([&] { return steps_on_record().size() == 1; });
  save(2);  // the step is computed again, with the same bits
  save(4);
  wait_until([&] { return steps_on_record().size() == 2; });
  save(2, 8);
  wait_until([&] { return steps_on_record().size() == 3; });
  const SeenCheckpoints seen = checkpoints_on_record(run_.path());
  EXPECT_THAT(checkpoints_to_measure(run_.path(), seen), ::testing::IsEmpty());
  save(4, 8);
  ASSERT_EQ(checkpoints_to_measure(run_.path(), seen).size(), 1U);
  wait_until([&] { return !service_.drain(); });
  EXPECT_THAT(evaluator.measured, ElementsAre(2, 4, 2, 4));
}

TEST_F(EvaluationsTest, TheResultIsOfTheStateThatWasRead) {
  save(2);
  const std::string read = checkpoints_to_measure(run_.path(), {}).front().manifest;
  Evaluator& evaluator = start("server-1");
  evaluator.hangs = true;
  wait_until([&] {
    const std::vector<EvaluatorStatus> all = service_.evaluators();
    return !all.empty() && all.front().measures == 2 && evaluator.is_measuring;
  });
  save(2, 8);  // the job fell back and has reached the step again
  const std::string next = checkpoints_to_measure(run_.path(), {}).front().manifest;
  evaluator.hangs = false;
  wait_until([&] { return steps_on_record().size() == 2; });
  const std::vector<Evaluation> results = read_evaluations(run_.path());
  EXPECT_EQ(results[0].manifest, read);
  EXPECT_EQ(results[1].manifest, next);
  EXPECT_NE(read, next);
}

TEST_F(EvaluationsTest, ACheckpointThatIsBeingRemovedIsNotAnotherOne) {
  save(2);
  save(4);
  const std::vector<FoundCheckpoint> found = checkpoints_to_measure(run_.path(), {});
  ASSERT_EQ(found.size(), 2U);
  SeenCheckpoints seen;
  for (const FoundCheckpoint& one : found) {
    seen[one.step] = one.manifest;
  }
  std::filesystem::remove(run_ / "checkpoints/step-2/manifest.json");  // its folder still exists
  EXPECT_THAT(checkpoints_to_measure(run_.path(), seen), ::testing::IsEmpty());
  save(2, 8);
  EXPECT_EQ(checkpoints_to_measure(run_.path(), seen).size(), 1U);
}

TEST_F(EvaluationsTest, ACheckpointThatWasReadIsKnownAsTheOneThatIsFound) {
  save(2);
  const nn::CheckpointFiles files = load_checkpoint(run_ / "checkpoints/step-2").value().files;
  EXPECT_EQ(checkpoints_to_measure(run_.path(), {}).front().manifest, manifest_of(files));
}

TEST_F(EvaluationsTest, ACopyUnderAnotherNameIsNoCheckpoint) {
  save(2, 8);
  std::filesystem::copy(run_ / "checkpoints/step-2", run_ / "checkpoints/step-2.bak");
  save(2);
  EXPECT_EQ(checkpoints_to_measure(run_.path(), {}).size(), 1U);
}

TEST_F(EvaluationsTest, TheSummaryHasThatOfTheLastStepOfThisPart) {
  for (const auto& [step, top1] : {std::pair(100U, 0.25), std::pair(200U, 0.5)}) {
    Evaluation evaluation;
    evaluation.step = step;
    evaluation.test_top1 = top1;
    std::ofstream(run_ / "evaluations.jsonl", std::ios::app) << to_json(evaluation) << "\n";
  }
  Job job;
  job.config.run_dir = run_.path();
  RunHistory history;
  history.current_step = 150;
  const Summary summary = summary_of(job, history, 0);
  ASSERT_TRUE(summary.evaluations.has_value());
  EXPECT_EQ(summary.evaluations->step, 100U);
  EXPECT_DOUBLE_EQ(summary.evaluations->test_top1, 0.25);
  history.current_step = 50;
  EXPECT_FALSE(summary_of(job, history, 0).evaluations.has_value()) << "none is of what it has";
}

TEST_F(EvaluationsTest, ADismissedEvaluatorLeavesAfterItsCheckpoint) {
  Evaluator& evaluator = start("server-1");
  evaluator.hangs = true;
  save(2);
  wait_until([&] {
    const std::vector<EvaluatorStatus> all = service_.evaluators();
    return !all.empty() && all.front().measures == 2;
  });
  service_.dismiss(service_.evaluators().front().number);
  save(4);
  evaluator.hangs = false;
  wait_until([&] { return service_.evaluators().empty(); });
  EXPECT_THAT(steps_on_record(), ElementsAre(2));
  EXPECT_EQ(lost_, 0);
}

TEST_F(EvaluationsTest, ACoordinatorThatIsNotInChargeLetsThemGo) {
  is_in_charge_ = false;
  save(2);
  Evaluator& evaluator = start("server-1");
  wait_until([&] { return service_.evaluators().empty(); });
  EXPECT_TRUE(evaluator.measured.empty());
  EXPECT_TRUE(steps_on_record().empty());
}

TEST_F(EvaluationsTest, AnEvaluatorThatIsAskedToLeaveClosesItsConnection) {
  Evaluator& evaluator = start("server-1");
  evaluator.leaves = true;
  wait_until([&] { return service_.evaluators().empty(); });
  EXPECT_EQ(lost_, 1);
}

// A coordinator may take long to read a large checkpoint from a slow disk.
TEST(ServeEvaluations, WaitsForACoordinatorThatShowsThatItReadsACheckpoint) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd coordinator(ends[0]);
  const UniqueFd evaluator(ends[1]);
  TransferAnswer answer;
  answer.verdict = TransferAnswer::Verdict::kRefused;
  answer.text = "enough";
  ASSERT_TRUE(send_frame(coordinator.get(), {}).ok());
  ASSERT_TRUE(send_frame(coordinator.get(), {}).ok());
  ASSERT_TRUE(send_frame(coordinator.get(), encode(answer)).ok());
  const Result<std::string> end = serve_evaluations(
      evaluator.get(), [](Step, const nn::CheckpointFiles&) { return Evaluation(); },
      [] { return false; });
  ASSERT_TRUE(end.ok()) << end.error().detail;
  EXPECT_EQ(end.value(), "enough");
}

// The coordinator sends the checkpoint to an evaluator again, because it has no result yet.
TEST(ServeEvaluations, ACheckpointThatArrivesDamagedIsNoFailureToMeasureIt) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd coordinator(ends[0]);
  const UniqueFd evaluator(ends[1]);
  nn::CheckpointFiles files;
  for (const char* name : {nn::kManifestFile, nn::kModelFile, nn::kOptimizerFile}) {
    files[name] = Bytes(100);
  }
  TransferAnswer answer;
  answer.verdict = TransferAnswer::Verdict::kTransfer;
  answer.offer = offer_of(Step{2}, files);
  ASSERT_TRUE(send_frame(coordinator.get(), encode(answer)).ok());
  files[nn::kModelFile][50] ^= std::byte{1};
  ASSERT_TRUE(send_files(coordinator.get(), answer.offer, files).ok());
  ::shutdown(coordinator.get(), SHUT_WR);
  const Result<std::string> end = serve_evaluations(
      evaluator.get(),
      [](Step, const nn::CheckpointFiles&) {
        ADD_FAILURE() << "it is damaged";
        return Evaluation();
      },
      [] { return false; });
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().code, Errc::kCorrupt) << end.error().detail;
}

}  // namespace
}  // namespace mayfly::engine
