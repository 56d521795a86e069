#include "cli/evaluate_checkpoint.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "base/file.hpp"
#include "cli/configuration.hpp"
#include "engine/config/config.hpp"
#include "nn/cpu/conv_kernel.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::cli {
namespace {

namespace fs = std::filesystem;

/// The settings of the run that wrote the checkpoint, from RUN/config.toml above
/// RUN/checkpoints/step-N; the defaults if the checkpoint was moved elsewhere.
std::optional<engine::JobConfig> run_config(const std::string& checkpoint) {
  const fs::path run = fs::absolute(checkpoint).lexically_normal().parent_path().parent_path();
  const std::string path = (run / "config.toml").string();
  const Result<std::string> text = read_text_file(path, kConfigBytesMax);
  engine::JobConfig config;
  if (!text.ok() || !engine::apply_toml(config, text.value(), path).ok()) {
    return std::nullopt;
  }
  return config;
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
  std::uint32_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size() || number > max) {
    return Error{
        Errc::kInvalidInput,
        fmt::format("--{} expects a whole number from 0 to {}, got '{}'", name, max, text)};
  }
  return number;
}

/// The size of --image-size, else the run's size if the data set is the run's, else 0: the data set
/// decides.
Result<datasets::OpenOptions> open_options(const ParsedArguments& arguments,
                                           const OpenCheckpoint& checkpoint) {
  const Result<std::uint32_t> image_size = small_number_of(arguments, "image-size", 4096);
  if (!image_size.ok()) {
    return image_size.error();
  }
  datasets::OpenOptions options;
  options.skip_corrupt = arguments.has("skip-corrupt");
  options.seed = checkpoint.loaded.info.seed;  // as the run that wrote the checkpoint
  options.image_size = static_cast<int>(image_size.value());
  options.usual_image_size = checkpoint.model.image_size;
  const std::optional<engine::JobConfig> run = run_config(checkpoint.loaded.path);
  if (run.has_value() && options.image_size == 0 && arguments.option("data").empty()) {
    options.image_size = static_cast<int>(run->image_size);
  }
  std::error_code ignored;
  if (run.has_value() && fs::is_directory(run->cache_dir, ignored)) {
    options.cache_dir = run->cache_dir;  // spares decoding or measuring the images again
  }
  return options;
}

}  // namespace

Result<datasets::DatasetPair> open_test_data(const ParsedArguments& arguments,
                                             const OpenCheckpoint& checkpoint) {
  const Result<std::string> spec = data_of(arguments, checkpoint.loaded.path);
  if (!spec.ok()) {
    return spec.error();
  }
  const Result<datasets::OpenOptions> options = open_options(arguments, checkpoint);
  if (!options.ok()) {
    return options.error();
  }
  Result<datasets::DatasetPair> data = datasets::open_dataset(spec.value(), options.value());
  if (!data.ok()) {
    return data;
  }
  if (data.value().classes != checkpoint.model.classes) {
    return Error{Errc::kInvalidInput, fmt::format("{} has {} classes, the checkpoint's {} has {}",
                                                  spec.value(), data.value().classes,
                                                  checkpoint.model.name, checkpoint.model.classes)};
  }
  return data;
}

Result<EvaluationMeans> evaluation_means(const ParsedArguments& arguments,
                                         const std::string& usual_threads) {
  ParsedArguments asked = arguments;
  asked.options.try_emplace("threads", usual_threads);
  const Result<std::uint32_t> threads = small_number_of(asked, "threads", 1024);
  if (!threads.ok()) {
    return threads.error();
  }
  const Result<std::string> isa = nn::cpu::select_isa(arguments.option("isa", "auto"));
  if (!isa.ok()) {
    return isa.error();
  }
  const Result<void> kernels =
      nn::cpu::select_conv_kernels(arguments.option("conv-kernels", "auto"));
  if (!kernels.ok()) {
    return kernels.error();
  }
  return EvaluationMeans{threads.value(), isa.value()};
}

Result<engine::Accuracy> evaluate_on(const OpenCheckpoint& checkpoint,
                                     const datasets::DatasetPair& data, std::uint32_t threads) {
  // A checkpoint does not say how large the images were: its tensors do not depend on it.
  const Result<nn::Model> model =
      nn::make_model(checkpoint.model.name, checkpoint.model.classes, data.test->image_size());
  if (!model.ok()) {
    return Error{model.error().code, data.name + ": " + model.error().detail};
  }
  return engine::measure_accuracy(model.value(), checkpoint.state, data, threads);
}

}  // namespace mayfly::cli
