#pragma once

// The point of no return: a step whose reduced gradient is complete and clean is applied to the
// state. Every member computes the same thing from the same bits, so nothing has to be sent.

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "engine/gradient_buckets.hpp"
#include "engine/job.hpp"
#include "engine/reduction_layout.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// PyTorch's default weight of the newest batch in the running statistics.
inline constexpr float kStatisticsRate = 0.1F;

class Committer {
 public:
  Committer(const Job& job, const ReductionLayout& layout);

  /// Applies the reduced step to the state: gradient mean over all microbatches, SGD, running
  /// statistics, exponents of the next step; state.committed grows by one. Returns the mean loss.
  /// `exponents` are those the step was quantised with.
  float commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               nn::ModelState& state);

 private:
  void dequantize(const GradientBuckets& reduced, std::span<const std::int32_t> exponents);
  void average(const GradientBuckets& reduced);

  const Job& job_;
  const ReductionLayout& layout_;
  AlignedBuffer<float> mean_;  // the reduced vector divided by the number of microbatches
};

/// The exponents with which an overflowed step is tried again, from what was observed in it.
[[nodiscard]] std::vector<std::int32_t> raised_exponents(std::span<const std::int32_t> exponents,
                                                         std::span<const std::int32_t> observed);

}  // namespace mayfly::engine
