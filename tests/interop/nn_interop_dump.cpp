// Computes one training step and an evaluation of a model. Writes all inputs and results as raw
// little-endian arrays, so that torch_agreement.py can repeat the computation in PyTorch.
//
//   nn_interop_dump MODEL FOLDER

#include <fmt/core.h>

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "nn/cpu/resnet_engine.hpp"
#include "nn/model_state.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::nn {
namespace {

constexpr std::uint32_t kMicrobatch = 16;
constexpr int kClasses = 10;
constexpr float kLabelSmoothing = 0.1F;
constexpr float kLearningRate = 0.1F;
constexpr float kStatisticsRate = 0.1F;
constexpr std::uint64_t kSeed = 20;

class IgnoringSink final : public GradientSink {
 public:
  void ready_from(std::size_t) override {}
};

class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  template <typename T>
  void write(const std::string& name, std::span<const T> values) {
    std::ofstream file(path_ + "/" + name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size_bytes()));
    complete_ = complete_ && file.good();
  }
  void write_text(const std::string& name, const std::string& text) {
    write(name, std::span<const char>(text));
  }
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  std::string path_;
  bool complete_ = true;
};

/// One line per tensor: name, offset, then the extents.
std::string table_of(const std::vector<TensorInfo>& tensors) {
  std::string text;
  for (const TensorInfo& info : tensors) {
    text += fmt::format("{} {}", info.name, info.offset);
    for (const std::int64_t extent : info.shape) {
      text += fmt::format(" {}", extent);
    }
    text += "\n";
  }
  return text;
}

struct Samples {
  std::vector<float> images;
  std::vector<std::uint16_t> labels;
};

/// Images of smooth fields plus noise, whose pixels are correlated as in photographs.
Samples make_samples() {
  const CounterRandom random = CounterRandom(kSeed).split("samples");
  constexpr std::size_t kSide = 32;
  Samples samples;
  for (std::uint64_t n = 0; n < kMicrobatch; ++n) {
    samples.labels.push_back(static_cast<std::uint16_t>(random.below(n, kClasses)));
    for (std::uint64_t plane = 0; plane < 3; ++plane) {
      const CounterRandom draw = random.split(1 + n * 3 + plane);
      for (std::uint64_t pixel = 0; pixel < kSide * kSide; ++pixel) {
        const double row = static_cast<double>(pixel / kSide) / kSide - 0.5;
        const double column = static_cast<double>(pixel % kSide) / kSide - 0.5;
        const double slope = 4 * draw.unit(0) - 2;
        const double field = slope * row + (4 * draw.unit(1) - 2) * column + draw.unit(2) - 0.5;
        samples.images.push_back(static_cast<float>(field + 1.5 * (draw.unit(3 + pixel) - 0.5)));
      }
    }
  }
  return samples;
}

std::vector<double> losses_one_by_one(StepEngine& engine, const Weights& weights,
                                      const Samples& samples) {
  std::vector<double> losses;
  const std::size_t image = samples.images.size() / kMicrobatch;
  for (std::size_t n = 0; n < kMicrobatch; ++n) {
    const Batch one{std::span(samples.images).subspan(n * image, image),
                    std::span(samples.labels).subspan(n, 1)};
    losses.push_back(engine.evaluate(weights, one).loss_sum);
  }
  return losses;
}

/// One byte per activation of all ReLUs, in forward order and NCHW: 1 if its input was positive.
std::vector<std::uint8_t> relu_masks(const cpu::ResnetEngine& engine) {
  std::vector<std::uint8_t> masks;
  engine.visit_activations([&](const cpu::BlockedShape& shape, const float* values) {
    for (std::size_t plane = 0; plane < shape.images * shape.channels; ++plane) {
      const float* from = values + plane / shape.block * shape.pixels * shape.block;
      for (std::size_t pixel = 0; pixel < shape.pixels; ++pixel) {
        masks.push_back(from[pixel * shape.block + plane % shape.block] > 0 ? 1 : 0);
      }
    }
  });
  return masks;
}

void dump(const Model& model, cpu::ResnetEngine& engine, Folder& folder) {
  ModelState state = make_initial_state(model, kSeed, 0, 0);
  const CounterRandom random = CounterRandom(kSeed).split("momentum");
  for (std::size_t i = 0; i < state.momentum.size(); ++i) {
    state.momentum[i] = static_cast<float>(0.02 * (random.unit(i) - 0.5));
  }
  const Samples samples = make_samples();
  folder.write_text("parameters.txt", table_of(model.parameters));
  folder.write_text("statistics.txt", table_of(model.statistics));
  folder.write_text("options.txt", fmt::format("{} {} {} {}\n", model.blocks.size(),
                                               kLabelSmoothing, kLearningRate, kStatisticsRate));
  folder.write("images.f32", std::span<const float>(samples.images));
  folder.write("labels.u16", std::span<const std::uint16_t>(samples.labels));
  folder.write<float>("parameters.f32", state.parameters.span());
  folder.write<float>("momentum.f32", state.momentum.span());

  std::vector<float> gradient(model.parameter_count);
  std::vector<float> batch_statistics(model.statistic_count);
  IgnoringSink sink;
  const Weights before{state.parameters.span(), state.statistics.span(), 1};
  const TrainResult result = engine.train(before, {samples.images, samples.labels}, kLabelSmoothing,
                                          gradient, batch_statistics, sink);
  folder.write<double>("loss.f64", std::vector<double>{result.loss});
  folder.write<float>("gradient.f32", gradient);
  folder.write<std::uint8_t>("masks.u8", relu_masks(engine));

  sgd_update(SgdOptions{}, kLearningRate, gradient, state.parameters.span(), state.momentum.span());
  update_running_statistics(kStatisticsRate, batch_statistics, state.statistics.span());
  folder.write<float>("updated_parameters.f32", state.parameters.span());
  folder.write<float>("updated_momentum.f32", state.momentum.span());
  folder.write<float>("updated_statistics.f32", state.statistics.span());
  const Weights after{state.parameters.span(), state.statistics.span(), 2};
  folder.write<double>("evaluation_losses.f64", losses_one_by_one(engine, after, samples));
}

int run(const std::string& model_name, const std::string& path) {
  const auto model = make_model(model_name, kClasses);
  if (!model.ok()) {
    fmt::print(stderr, "{}\n", model.error().detail);
    return 2;
  }
  const auto engine =
      cpu::make_resnet_engine(model.value(), kMicrobatch, {.keep_activations = true});
  if (!engine.ok()) {
    fmt::print(stderr, "{}\n", engine.error().detail);
    return 2;
  }
  Folder folder(path);
  dump(model.value(), *engine.value(), folder);
  if (!folder.complete()) {
    fmt::print(stderr, "cannot write into {}\n", path);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace mayfly::nn

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: nn_interop_dump MODEL FOLDER\n");
    return 2;
  }
  return mayfly::nn::run(argv[1], argv[2]);
}
