#pragma once

// A small training set and a microbatch of it, in two forms: images as the loader prepares them on
// the host, and draws for engines that look images up themselves.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "nn/cuda/image_source.hpp"
#include "tests/unit/nn/cuda/step_problem.hpp"

namespace mayfly::nn::cuda {

/// A problem whose images are those of the draws.
struct SetProblem : Problem {
  static constexpr std::uint64_t kSamples = 20;
  static constexpr std::uint64_t kSeed = 42;

  SetProblem(const std::string& name, int image_size, std::uint32_t images, bool augment)
      : Problem(name, image_size, images) {
    const datasets::Normaliser normaliser({0.49F, 0.48F, 0.45F}, {0.25F, 0.24F, 0.26F});
    const auto side = static_cast<std::size_t>(image_size);
    set.resident = {.samples = kSamples,
                    .augmentation = datasets::augmentation_source(kSeed),
                    .augment = augment};
    set.table = normaliser.table();
    set.image_bytes = 3 * side * side;
    bytes.resize(kSamples * set.image_bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(mix64(i));
    }
    set.read = [this](std::uint64_t sample, std::span<std::uint8_t> to) -> Result<void> {
      std::ranges::copy(image(sample), to.begin());
      return {};
    };
    for (std::uint64_t i = 0; i < images; ++i) {
      draws.push_back({.sample = (7 * i + kSamples - 1) % kSamples, .epoch = i % 3});
      normaliser.apply(augment ? datasets::draw_augmentation(kSeed, draws[i].epoch, draws[i].sample)
                               : datasets::Augmentation{},
                       image_size, image(draws[i].sample),
                       std::span(pixels).subspan(i * set.image_bytes, set.image_bytes));
    }
  }
  SetProblem(const SetProblem&) = delete;  // `set` reads from it
  SetProblem& operator=(const SetProblem&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> image(std::uint64_t sample) const {
    return std::span(bytes).subspan(sample * set.image_bytes, set.image_bytes);
  }
  /// The same as Problem::train(), with draws in place of images.
  [[nodiscard]] Outcome train_by_draws(StepEngine& engine) const {
    Outcome outcome{{},
                    std::vector<float>(model.parameter_count, NAN),
                    std::vector<float>(model.statistic_count, NAN)};
    RecordingSink sink;
    outcome.result = engine.train(weights(), {.images = {}, .labels = labels, .draws = draws}, 0.1F,
                                  outcome.gradient, outcome.statistics, sink);
    return outcome;
  }

  std::vector<std::uint8_t> bytes;
  TrainingSet set;
  std::vector<SampleDraw> draws;
};

}  // namespace mayfly::nn::cuda
