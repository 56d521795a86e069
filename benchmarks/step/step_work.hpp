#pragma once

// Private to `mayfly bench step`: the data of a step on synthetic images, for a CPU's thread and
// for a GPU. One thread.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "engine/reduction/gradient_sums.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::bench {

/// The part of the measuring time for which the worker computes before the measurement.
inline constexpr double kWarmUpShare = 0.2;

/// The data of a worker's share of an update: state, one microbatch of random images that is
/// computed again and again, exact sums. Equal for equal arguments.
struct StepWork {
  static constexpr float kLearningRate = 1e-4F;

  /// `images_per_update` is a multiple of `microbatch_size`. `model` outlives the work. Sums are
  /// exact or of floats.
  StepWork(const nn::Model& model, std::uint32_t microbatch_size, std::uint32_t images_per_update,
           bool exact = true);

  [[nodiscard]] nn::Weights weights() const {
    return {.parameters = state.parameters.span(),
            .statistics = state.statistics.span(),
            .version = value(state.committed),
            .loss_scale = state.loss_scale.has_value() ? state.loss_scale->factor() : 1.0F};
  }
  [[nodiscard]] nn::Batch batch() const { return {images, labels}; }
  /// Parts of `vector`, into which an engine writes its results.
  [[nodiscard]] std::span<float> gradient() {
    return vector.span().subspan(layout.parameters_offset());
  }
  [[nodiscard]] std::span<float> statistics() {
    return vector.span().subspan(layout.statistics_offset(), model.statistic_count);
  }

  const nn::Model& model;
  std::uint32_t microbatch_size;
  std::uint32_t microbatches;  ///< microbatches of an update
  engine::ReductionLayout layout;
  engine::GradientSums sums;
  std::vector<std::int32_t> exponents;  ///< so large that nothing overflows and is computed again
  AlignedBuffer<float> vector;          ///< of one microbatch: loss, statistics, gradients
  nn::ModelState state;
  std::vector<float> images;
  std::vector<std::uint16_t> labels;
};

struct UpdateCount {
  std::uint64_t updates = 0;
  double seconds = 0;
};

/// Computes whole updates for at least so long, at least one.
[[nodiscard]] UpdateCount run_updates(double seconds, const std::function<void()>& one_update);

}  // namespace mayfly::bench
