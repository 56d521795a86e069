#pragma once

// A network with weights and a microbatch, for tests that compare whole steps of two engines.

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/nn/engine_fixture.hpp"

namespace mayfly::nn::cuda {

using cpu::Outcome;
using cpu::RecordingSink;

inline double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum);
}

inline double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  }
  return std::sqrt(sum);
}

inline double relative_error(std::span<const float> found, std::span<const float> expected) {
  return distance(found, expected) / norm_of(expected);
}

/// A network with weights and a microbatch, for images of any size.
struct Problem {
  Problem(const std::string& name, int image_size, std::uint32_t images, int classes = 10)
      : model(make_model(name, classes, image_size).value()),
        state(cpu::random_state(model, 5)),
        labels(cpu::random_labels(images, static_cast<std::uint64_t>(classes), 11)) {
    const auto side = static_cast<std::size_t>(model.image_size);
    pixels = cpu::random_images(images * ((side * side + 1023) / 1024), 11);
    pixels.resize(images * 3 * side * side);
  }

  /// Shifts the outputs of norms by three deviations: up, but inside blocks down in every fourth
  /// channel. Two engines round differently, so they may disagree about a ReLU whose input is close
  /// to 0, and in a small network one such ReLU visibly changes the gradient. After the shifts no
  /// input is that close, but channels that are mostly on or mostly off still have exceptions.
  void decide_relus() {
    const auto shift = [this](const ConvSpec& spec, bool all_up) {
      const TensorInfo& info = model.parameters[spec.weight + 2];
      for (std::size_t c = 0; c < info.size; ++c) {
        state.parameters[info.offset + c] += all_up || c % 4 != 0 ? 3.0F : -3.0F;
      }
    };
    shift(model.stem, false);
    for (const BlockSpec& block : model.blocks) {
      for (std::size_t i = 0; i < block.convs.size(); ++i) {
        shift(block.convs[i], i + 1 == block.convs.size());
      }
    }
  }

  [[nodiscard]] std::uint32_t images() const { return static_cast<std::uint32_t>(labels.size()); }
  [[nodiscard]] Weights weights(std::uint64_t version = 1) const {
    return {state.parameters.span(), state.statistics.span(), version, loss_scale};
  }
  [[nodiscard]] Batch batch(std::size_t first, std::size_t count) const {
    const std::size_t image = pixels.size() / labels.size();
    return {std::span(pixels).subspan(first * image, count * image),
            std::span(labels).subspan(first, count)};
  }
  /// `id`: that of the batch, if the engine expects it.
  [[nodiscard]] Outcome train(StepEngine& engine, std::uint64_t version = 1,
                              std::uint64_t id = 0) const {
    Outcome outcome{{},
                    std::vector<float>(model.parameter_count, NAN),
                    std::vector<float>(model.statistic_count, NAN)};
    RecordingSink sink;
    Batch whole = batch(0, labels.size());
    whole.id = id;
    outcome.result =
        engine.train(weights(version), whole, 0.1F, outcome.gradient, outcome.statistics, sink);
    return outcome;
  }

  Model model;
  ModelState state;
  std::vector<float> pixels;
  std::vector<std::uint16_t> labels;
  float loss_scale = 1;
};

}  // namespace mayfly::nn::cuda
