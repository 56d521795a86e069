// The accuracy of checkpoints on a test set: `mayfly eval` for one, and `mayfly evaluator` for
// every checkpoint of a run as it appears, in a process of its own.

#include "cli/evaluate.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/thread_priority.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "cli/arguments.hpp"
#include "cli/cli.hpp"
#include "engine/config/config.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/evaluations.hpp"
#include "engine/run/line_file.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_directory.hpp"
#include "nn/cpu/conv_kernel.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::cli {
namespace {

namespace fs = std::filesystem;

/// The settings of the run that wrote the checkpoint, from RUN/config.toml above
/// RUN/checkpoints/step-N; the defaults if the checkpoint was moved elsewhere.
std::optional<engine::JobConfig> run_config(const std::string& checkpoint) {
  const fs::path run = fs::absolute(checkpoint).lexically_normal().parent_path().parent_path();
  Result<engine::JobConfig> config = engine::config_of_run(run.string());
  return config.ok() ? std::optional(std::move(config).value()) : std::nullopt;
}

Result<std::string> data_of(const ParsedArguments& arguments, const std::string& checkpoint) {
  if (const std::string spec = arguments.option("data"); !spec.empty()) {
    return spec;
  }
  if (const std::optional<engine::JobConfig> config = run_config(checkpoint)) {
    return config->data;
  }
  return Error{Errc::kInvalidInput, "eval needs --data SPEC: " + checkpoint +
                                        " is not inside a run directory with a config.toml"};
}

Result<std::uint32_t> small_number_of(const ParsedArguments& arguments, const std::string& name,
                                      std::uint32_t max) {
  const std::string text = arguments.option(name, "0");
  const auto number = number_in<std::uint32_t>(text, 0, max);
  if (!number) {
    return Error{
        Errc::kInvalidInput,
        fmt::format("--{} expects a whole number from 0 to {}, got '{}'", name, max, text)};
  }
  return *number;
}

/// The size of --image-size, else the run's size if the data set is the run's, else 0: the data set
/// decides.
Result<datasets::OpenOptions> open_options(const ParsedArguments& arguments,
                                           const OpenCheckpoint& checkpoint) {
  TRY_ASSIGN(const std::uint32_t image_size, small_number_of(arguments, "image-size", 4096));
  datasets::OpenOptions options;
  options.skip_corrupt = arguments.has("skip-corrupt");
  options.seed = checkpoint.loaded.info.seed;  // that of the run that wrote the checkpoint
  options.image_size = static_cast<int>(image_size);
  options.usual_image_size = checkpoint.model.image_size;
  const std::optional<engine::JobConfig> run = run_config(checkpoint.loaded.path);
  if (run.has_value() && options.image_size == 0 && arguments.option("data").empty()) {
    options.image_size = static_cast<int>(run->image_size);
  }
  std::error_code ignored;
  if (run.has_value() && fs::is_directory(run->cache_dir, ignored)) {
    options.cache_dir = run->cache_dir;  // so that images need not be decoded or measured again
  }
  return options;
}

struct Evaluation {
  std::string path;
  std::uint64_t step = 0;
  std::string data;
  std::string isa;
  engine::Accuracy accuracy;
};

Result<Evaluation> evaluate_checkpoint(const ParsedArguments& arguments) {
  TRY_ASSIGN(const std::string path, checkpoint_argument("eval", arguments));
  TRY_ASSIGN(const EvaluationMeans means, evaluation_means(arguments, "0"));
  TRY_ASSIGN(const OpenCheckpoint checkpoint, open_checkpoint(path));
  TRY_ASSIGN(const datasets::DatasetPair data, open_test_data(arguments, checkpoint));
  TRY_ASSIGN(const engine::Accuracy accuracy, evaluate_on(checkpoint, data, means.threads));
  return Evaluation{checkpoint.loaded.path, value(checkpoint.state.committed), data.name, means.isa,
                    accuracy};
}

constexpr Duration kPollInterval = milliseconds(500);

class Evaluator {
 public:
  Evaluator(const ParsedArguments& arguments, Context& context, std::string run_dir,
            EvaluationMeans means, std::unique_ptr<engine::LineFile> lines)
      : arguments_(arguments),
        context_(context),
        run_dir_(std::move(run_dir)),
        means_(std::move(means)),
        lines_(std::move(lines)),
        seen_(engine::checkpoints_on_record(run_dir_)) {}

  /// Measures checkpoints until the run has ended and its last checkpoint is measured. Returns the
  /// exit code.
  int run() {
    while (true) {
      // Determined before the checkpoints are listed, so that the last one cannot be missed.
      const bool has_ended = run_has_ended();
      const std::vector<engine::FoundCheckpoint> found =
          engine::checkpoints_to_measure(run_dir_, seen_);
      for (const engine::FoundCheckpoint& checkpoint : found) {
        if (Result<void> done = measure(checkpoint); !done.ok()) {
          return context_.complain(done.error());
        }
      }
      if (has_ended && found.empty()) {
        return unreadable_ == 0 ? kExitDone : kExitFailed;
      }
      if (found.empty()) {
        context_.services.pause(kPollInterval);
      }
    }
  }

 private:
  /// False also for a run that was continued after its summary: it has written events since, or has
  /// removed the summary.
  bool run_has_ended() const {
    std::error_code failure;
    const auto summary = fs::last_write_time(run_dir_ + "/summary.json", failure);
    if (failure) {
      return false;
    }
    const auto events = fs::last_write_time(run_dir_ + "/events.jsonl", failure);
    return !failure && summary >= events;
  }

  /// Measures a checkpoint. It may be removed while it is read; then newer ones exist.
  Result<void> measure(const engine::FoundCheckpoint& found) {
    seen_.insert_or_assign(found.step, found.manifest);
    const Instant begin = monotonic_now();
    const std::string path =
        engine::folder_of_checkpoint(run_dir_ + "/checkpoints", Step{found.step});
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
      TRY_ASSIGN(datasets::DatasetPair data, open_test_data(arguments_, checkpoint.value()));
      data_ = std::move(data);
    }
    TRY_ASSIGN(const engine::Accuracy accuracy,
               evaluate_on(checkpoint.value(), *data_, means_.threads));
    return record({found.step, engine::manifest_of(checkpoint.value().loaded.files)}, accuracy,
                  to_seconds(monotonic_now() - begin));
  }

  Result<void> record(const engine::FoundCheckpoint& measured, const engine::Accuracy& accuracy,
                      double seconds) {
    engine::Evaluation evaluation;
    evaluation.step = measured.step;
    evaluation.manifest = measured.manifest;
    evaluation.samples = accuracy.samples;
    evaluation.test_top1 = accuracy.top1();
    evaluation.test_loss = accuracy.loss;
    evaluation.seconds = seconds;
    context_.out << fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}\n",
                                measured.step, 100 * accuracy.top1(), accuracy.loss)
                 << std::flush;
    return lines_->append(engine::to_json(evaluation));
  }

  const ParsedArguments& arguments_;
  Context& context_;
  const std::string run_dir_;
  const EvaluationMeans means_;
  std::unique_ptr<engine::LineFile> lines_;
  engine::SeenCheckpoints seen_;
  std::optional<datasets::DatasetPair> data_;
  std::uint32_t unreadable_ = 0;
};

}  // namespace

Result<datasets::DatasetPair> open_test_data(const ParsedArguments& arguments,
                                             const OpenCheckpoint& checkpoint) {
  TRY_ASSIGN(const std::string spec, data_of(arguments, checkpoint.loaded.path));
  TRY_ASSIGN(const datasets::OpenOptions options, open_options(arguments, checkpoint));
  Result<datasets::DatasetPair> data = datasets::open_dataset(spec, options);
  if (!data.ok()) {
    return data;
  }
  if (data.value().classes != checkpoint.model.classes) {
    return Error{Errc::kInvalidInput, fmt::format("{} has {} classes, the checkpoint's {} has {}",
                                                  spec, data.value().classes, checkpoint.model.name,
                                                  checkpoint.model.classes)};
  }
  return data;
}

Result<EvaluationMeans> evaluation_means(const ParsedArguments& arguments,
                                         const std::string& usual_threads) {
  ParsedArguments asked = arguments;
  asked.options.try_emplace("threads", usual_threads);
  TRY_ASSIGN(const std::uint32_t threads, small_number_of(asked, "threads", 1024));
  TRY_ASSIGN(const std::string isa, nn::cpu::select_isa(arguments.option("isa", "auto")));
  TRY(nn::cpu::select_conv_kernels(arguments.option("conv-kernels", "auto")));
  return EvaluationMeans{threads, isa};
}

Result<engine::Accuracy> evaluate_on(const OpenCheckpoint& checkpoint,
                                     const datasets::DatasetPair& data, std::uint32_t threads) {
  // A checkpoint does not contain the size of images, because its tensors do not depend on it.
  const Result<nn::Model> model =
      nn::make_model(checkpoint.model.name, checkpoint.model.classes, data.test->image_size());
  if (!model.ok()) {
    return Error{model.error().code, data.name + ": " + model.error().detail};
  }
  return engine::measure_accuracy(model.value(), checkpoint.state, data, threads);
}

int evaluate(const ParsedArguments& arguments, Context& context) {
  const Result<Evaluation> done = evaluate_checkpoint(arguments);
  if (!done.ok()) {
    return context.complain(done.error());
  }
  const Evaluation& e = done.value();
  if (arguments.has("json")) {
    context.out << engine::json_text({{"path", e.path},
                                      {"step", e.step},
                                      {"data", e.data},
                                      {"samples", e.accuracy.samples},
                                      {"test_top1", e.accuracy.top1()},
                                      {"test_loss", e.accuracy.loss},
                                      {"isa", e.isa}})
                << "\n";
  } else {
    context.out << fmt::format("{}: step {}, {:.2f} % of {} test images of {}, loss {:.4f}\n",
                               e.path, e.step, e.accuracy.top1() * 100, e.accuracy.samples, e.data,
                               e.accuracy.loss);
  }
  return kExitDone;
}

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
      engine::LineFile::open(engine::evaluations_path(run_dir), engine::LineFile::Content::kLines);
  if (!lines.ok()) {
    return context.complain(lines.error());
  }
  return Evaluator(arguments, context, run_dir, means.value(), std::move(lines).value()).run();
}

}  // namespace mayfly::cli
