// Writes weights and logits to files, for weight_agreement.py.
//
//   weight_interop make MODEL CLASSES WEIGHTS            writes a weight file with perturbed norms
//   weight_interop logits MODEL WEIGHTS IMAGES SIZE OUT  evaluates images (raw F32, NCHW) and
//                                                        writes raw F64 logits, images x classes
//
// The engine's port returns losses, not logits. The loss with label k is log(sum of exp) - logit k.
// In these files the weights and bias of class 0 are 0, so its logit is 0, and the other logits
// follow from the losses. Exit status: 0, 2 for an error, 77 if the engine cannot compute the
// model.

#include <fmt/core.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/random.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/model_state.hpp"
#include "nn/weight_file.hpp"

namespace mayfly::nn {
namespace {

constexpr int kError = 2;
constexpr int kSkipped = 77;
constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;

int fail(const std::string& text, int code = kError) {
  fmt::print(stderr, "{}\n", text);
  return code;
}

void fill(const CounterRandom& random, double from, double to, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(from + (to - from) * random.unit(i));
  }
}

/// Changes the norms as training does: no value is 0 or 1 any more, and variances differ from
/// means.
void perturb_norms(const Model& model, ModelState& state) {
  const CounterRandom random = CounterRandom(5).split("norms");
  const auto parameter = [&](std::size_t index) {
    return state.parameters.span().subspan(model.parameters[index].offset,
                                           model.parameters[index].size);
  };
  const auto statistic = [&](std::size_t index) {
    return state.statistics.span().subspan(model.statistics[index].offset,
                                           model.statistics[index].size);
  };
  for (const ConvSpec* conv : convolutions_of(model)) {
    const CounterRandom draw = random.split(conv->weight);
    fill(draw.split("scale"), 0.4, 0.9, parameter(conv->weight + 1));
    fill(draw.split("shift"), -0.2, 0.2, parameter(conv->weight + 2));
    fill(draw.split("mean"), -0.3, 0.3, statistic(conv->running_mean));
    fill(draw.split("variance"), 0.5, 2, statistic(conv->running_mean + 1));
  }
}

void silence_class_0(const Model& model, ModelState& state) {
  const std::size_t weight = model.parameters[model.classifier_weight].offset;
  const std::size_t bias = model.parameters[model.classifier_weight + 1].offset;
  const CounterRandom none(0);
  fill(none, 0, 0,
       state.parameters.span().subspan(weight, static_cast<std::size_t>(model.features)));
  fill(none, 0, 0, state.parameters.span().subspan(bias, 1));
}

int make(const std::string& name, int classes, const std::string& path) {
  const Result<Model> model = make_model(name, classes);
  if (!model.ok()) {
    return fail(model.error().detail);
  }
  ModelState state = make_initial_state(model.value(), 5, 0, 0);
  perturb_norms(model.value(), state);
  silence_class_0(model.value(), state);
  const Result<void> written =
      write_file_atomic(path, ByteSpan(encode_weight_file(model.value(), state)));
  return written.ok() ? 0 : fail(written.error().detail);
}

struct Loaded {
  Model model;
  ModelState state;
};

Result<Loaded> load(const std::string& name, const std::string& path, int image_size) {
  const Result<Bytes> file = read_file(path, kFileBytesMax);
  if (!file.ok()) {
    return file.error();
  }
  const Result<WeightTensors> tensors = read_weight_file(file.value());
  if (!tensors.ok()) {
    return tensors.error();
  }
  Result<Model> model = make_model(name, classes_of(tensors.value()).value_or(0), image_size);
  if (!model.ok()) {
    return std::move(model).error();
  }
  Loaded loaded{std::move(model).value(), {}};
  loaded.state = make_initial_state(loaded.model, 1, 0, 0);
  const Result<bool> taken =
      load_weights(loaded.model, tensors.value(), ClassifierPolicy::kMustFit, loaded.state);
  if (!taken.ok()) {
    return taken.error();
  }
  return loaded;
}

std::vector<double> logits_of(StepEngine& engine, const Loaded& loaded,
                              std::span<const float> image) {
  const Weights weights{loaded.state.parameters.span(), loaded.state.statistics.span(), 1};
  std::vector<double> losses;
  for (int k = 0; k < loaded.model.classes; ++k) {
    const auto label = static_cast<std::uint16_t>(k);
    losses.push_back(engine.evaluate(weights, {image, std::span(&label, 1)}).loss_sum);
  }
  std::vector<double> logits;
  for (const double loss : losses) {
    logits.push_back(losses.front() - loss);
  }
  return logits;
}

int logits(const std::string& name, const std::string& weights, const std::string& images,
           int image_size, const std::string& out) {
  const Result<Loaded> loaded = load(name, weights, image_size);
  const Result<Bytes> pixels = read_file(images, kFileBytesMax);
  if (!loaded.ok() || !pixels.ok()) {
    return fail(loaded.ok() ? pixels.error().detail : loaded.error().detail);
  }
  const auto engine = cpu::make_cpu_engine(loaded.value().model, 1);
  if (!engine.ok()) {
    return fail(engine.error().detail,
                engine.error().code == Errc::kUnsupported ? kSkipped : kError);
  }
  std::vector<float> values(pixels.value().size() / sizeof(float));
  std::memcpy(values.data(), pixels.value().data(), values.size() * sizeof(float));
  const auto side = static_cast<std::size_t>(image_size);
  std::vector<double> all;
  for (std::size_t at = 0; at < values.size(); at += 3 * side * side) {
    const auto one =
        logits_of(*engine.value(), loaded.value(), std::span(values).subspan(at, 3 * side * side));
    all.insert(all.end(), one.begin(), one.end());
  }
  const Result<void> written = write_file_atomic(out, std::as_bytes(std::span(all)));
  return written.ok() ? 0 : fail(written.error().detail);
}

}  // namespace
}  // namespace mayfly::nn

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 4 && words[0] == "make") {
    return mayfly::nn::make(words[1], std::stoi(words[2]), words[3]);
  }
  if (words.size() == 6 && words[0] == "logits") {
    return mayfly::nn::logits(words[1], words[2], words[3], std::stoi(words[4]), words[5]);
  }
  return mayfly::nn::fail(
      "usage: weight_interop make MODEL CLASSES WEIGHTS | "
      "logits MODEL WEIGHTS IMAGES SIZE OUT");
}
