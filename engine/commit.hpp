#pragma once

// The point of no return: a step whose reduced gradient is complete and clean is applied to the
// state. Every member computes the same thing from the same bits, so nothing has to be sent.

#include <cstdint>
#include <span>

#include "engine/compute_pool.hpp"
#include "engine/gradient_buckets.hpp"
#include "engine/job.hpp"
#include "engine/reduction_layout.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// PyTorch's default weight of the newest batch in the running statistics.
inline constexpr float kStatisticsRate = 0.1F;

class Committer {
 public:
  Committer(const Job& job, const ReductionLayout& layout) : job_(job), layout_(layout) {}

  /// Applies the reduced step to the state: gradient mean over all microbatches, SGD, running
  /// statistics, exponents of the next step; state.committed grows by one. Returns the mean loss.
  /// `exponents` are those the step was quantised with; the threads of `pool` share large updates.
  float commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               ComputePool& pool, nn::ModelState& state) const;

 private:
  struct Range {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  /// Means and updates of some blocks; different blocks may be updated at the same time.
  void update(const GradientBuckets& reduced, std::span<const std::int32_t> exponents, Range blocks,
              nn::ModelState& state) const;

  const Job& job_;
  const ReductionLayout& layout_;
};

}  // namespace mayfly::engine
