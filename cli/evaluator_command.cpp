// `mayfly evaluator`: measures every checkpoint of a run as it appears, in a process of its own.

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/thread_priority.hpp"
#include "base/time.hpp"
#include "cli/commands.hpp"
#include "cli/evaluate_checkpoint.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/evaluations.hpp"
#include "engine/run/line_file.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::cli {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPollInterval = milliseconds(500);
/// Steps that the lines of an earlier evaluator are about.
std::set<std::uint64_t> steps_on_record(const std::string& run_dir) {
  std::set<std::uint64_t> steps;
  for (const engine::Evaluation& evaluation : engine::read_evaluations(run_dir)) {
    steps.insert(evaluation.step);
  }
  return steps;
}

class Evaluator {
 public:
  Evaluator(const ParsedArguments& arguments, Context& context, std::string run_dir,
            EvaluationMeans means, std::unique_ptr<engine::LineFile> lines)
      : arguments_(arguments),
        context_(context),
        run_dir_(std::move(run_dir)),
        means_(std::move(means)),
        lines_(std::move(lines)),
        seen_(steps_on_record(run_dir_)) {}

  /// Measures checkpoints until the run has ended and its last checkpoint is measured. Returns the
  /// exit code.
  int run() {
    while (true) {
      // Asked before the checkpoints are listed, so that the last one cannot be missed.
      const bool has_ended = run_has_ended();
      const std::vector<std::uint64_t> steps = engine::checkpoints_to_measure(run_dir_, seen_);
      for (const std::uint64_t step : steps) {
        if (Result<void> done = measure(step); !done.ok()) {
          return context_.complain(done.error());
        }
      }
      if (has_ended && steps.empty()) {
        return unreadable_ == 0 ? kExitDone : kExitFailed;
      }
      if (steps.empty()) {
        context_.services.pause(kPollInterval);
      }
    }
  }

 private:
  /// A run that continues after its summary has written events since, or has removed its summary.
  bool run_has_ended() const {
    std::error_code failure;
    const auto summary = fs::last_write_time(run_dir_ + "/summary.json", failure);
    if (failure) {
      return false;
    }
    const auto events = fs::last_write_time(run_dir_ + "/events.jsonl", failure);
    return !failure && summary >= events;
  }

  /// A checkpoint may be removed while it is read: newer ones are there then.
  Result<void> measure(std::uint64_t step) {
    seen_.insert(step);
    const Instant begin = monotonic_now();
    const std::string path = engine::folder_of_checkpoint(run_dir_ + "/checkpoints", Step{step});
    const Result<OpenCheckpoint> checkpoint = open_checkpoint(path);
    if (!checkpoint.ok()) {
      std::error_code ignored;
      if (fs::exists(path, ignored)) {
        ++unreadable_;
        context_.complain(checkpoint.error());
      }
      return {};
    }
    if (!data_) {
      Result<datasets::DatasetPair> data = open_test_data(arguments_, checkpoint.value());
      if (!data.ok()) {
        return std::move(data).error();
      }
      data_ = std::move(data).value();
    }
    const Result<engine::Accuracy> accuracy =
        evaluate_on(checkpoint.value(), *data_, means_.threads);
    if (!accuracy.ok()) {
      return accuracy.error();
    }
    return record(step, accuracy.value(), to_seconds(monotonic_now() - begin));
  }

  Result<void> record(std::uint64_t step, const engine::Accuracy& accuracy, double seconds) {
    engine::Evaluation evaluation;
    evaluation.step = step;
    evaluation.samples = accuracy.samples;
    evaluation.test_top1 = accuracy.top1();
    evaluation.test_loss = accuracy.loss;
    evaluation.seconds = seconds;
    context_.out << fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}\n", step,
                                100 * accuracy.top1(), accuracy.loss)
                 << std::flush;
    return lines_->append(engine::to_json(evaluation));
  }

  const ParsedArguments& arguments_;
  Context& context_;
  const std::string run_dir_;
  const EvaluationMeans means_;
  std::unique_ptr<engine::LineFile> lines_;
  std::set<std::uint64_t> seen_;
  std::optional<datasets::DatasetPair> data_;
  std::uint32_t unreadable_ = 0;
};

}  // namespace

int evaluator(const ParsedArguments& arguments, Context& context) {
  const std::string run_dir = arguments.option("run-dir");
  std::error_code ignored;
  if (run_dir.empty() || !fs::is_directory(run_dir, ignored)) {
    return context.complain(
        run_dir.empty() ? "evaluator needs --run-dir DIR, the directory of a run"
                        : run_dir + " is not a directory; evaluator follows a run that has begun",
        kExitUsage);
  }
  // Training has priority. One thread by default is enough, because measuring a checkpoint may take
  // until the next one appears.
  run_with_low_priority();
  const Result<EvaluationMeans> means = evaluation_means(arguments, "1");
  if (!means.ok()) {
    return context.complain(means.error());
  }
  Result<std::unique_ptr<engine::LineFile>> lines =
      engine::LineFile::open(run_dir + "/evaluations.jsonl", engine::LineFile::Content::kLines);
  if (!lines.ok()) {
    return context.complain(lines.error());
  }
  return Evaluator(arguments, context, run_dir, means.value(), std::move(lines).value()).run();
}

}  // namespace mayfly::cli
