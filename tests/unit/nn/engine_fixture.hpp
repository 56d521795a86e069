#pragma once

// A model with a state, images and labels, for tests that run whole steps.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/model_state.hpp"

namespace mayfly::nn::cpu {

class RecordingSink final : public GradientSink {
 public:
  explicit RecordingSink(std::size_t room = 256) { offsets_.reserve(room); }
  void ready_from(std::size_t offset) override { offsets_.push_back(offset); }
  [[nodiscard]] const std::vector<std::size_t>& offsets() const { return offsets_; }
  void clear() { offsets_.clear(); }

 private:
  std::vector<std::size_t> offsets_;
};

inline std::vector<float> random_images(std::size_t count, std::uint64_t seed,
                                        std::size_t image_size = 32) {
  const CounterRandom random = CounterRandom(seed).split("images");
  std::vector<float> images(count * 3 * image_size * image_size);
  for (std::size_t i = 0; i < images.size(); ++i) {
    images[i] = static_cast<float>(4.0 * random.unit(i) - 2.0);
  }
  return images;
}

inline std::vector<std::uint16_t> random_labels(std::size_t count, std::uint64_t classes,
                                                std::uint64_t seed) {
  const CounterRandom random = CounterRandom(seed).split("labels");
  std::vector<std::uint16_t> labels(count);
  for (std::size_t i = 0; i < count; ++i) {
    labels[i] = static_cast<std::uint16_t>(random.below(i, classes));
  }
  return labels;
}

/// An initial state without special values: scales around 1, shifts around 0, running statistics as
/// after some training.
inline ModelState random_state(const Model& model, std::uint64_t seed) {
  ModelState state = make_initial_state(model, seed, 0, 0);
  const CounterRandom random = CounterRandom(seed).split("perturbation");
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    state.parameters[i] += static_cast<float>(0.1 * (random.unit(i) - 0.5));
  }
  for (std::size_t i = 0; i < state.statistics.size(); ++i) {
    state.statistics[i] += static_cast<float>(random.unit(1'000'000 + i) - 0.4);
  }
  return state;
}

struct Outcome {
  TrainResult result;
  std::vector<float> gradient;
  std::vector<float> statistics;

  bool operator==(const Outcome& other) const {
    return result.loss == other.result.loss && result.correct == other.result.correct &&
           gradient == other.gradient && statistics == other.statistics;
  }
};

struct Fixture {
  explicit Fixture(const std::string& name, std::uint32_t size, int classes = 10,
                   int image_size = 32)
      : model(make_model(name, classes, image_size).value()),
        state(random_state(model, 5)),
        images(random_images(size, 11, static_cast<std::size_t>(image_size))),
        labels(random_labels(size, static_cast<std::uint64_t>(classes), 11)),
        microbatch(size) {}

  [[nodiscard]] Weights weights(std::uint64_t version = 1) const {
    return {state.parameters.span(), state.statistics.span(), version};
  }
  [[nodiscard]] Batch batch() const { return {images, labels}; }
  [[nodiscard]] std::unique_ptr<StepEngine> engine() const {
    return make_cpu_engine(model, microbatch).value();
  }
  [[nodiscard]] Outcome train(StepEngine& engine, float smoothing = 0.1F,
                              std::uint64_t version = 1) const {
    Outcome outcome{{},
                    std::vector<float>(model.parameter_count, NAN),
                    std::vector<float>(model.statistic_count, NAN)};
    RecordingSink sink;
    outcome.result = engine.train(weights(version), batch(), smoothing, outcome.gradient,
                                  outcome.statistics, sink);
    return outcome;
  }

  Model model;
  ModelState state;
  std::vector<float> images;
  std::vector<std::uint16_t> labels;
  std::uint32_t microbatch;
};

}  // namespace mayfly::nn::cpu
