#pragma once

// The commit of a step: its complete, finite gradient is applied to the state. Every member
// computes the same update from the same bits, so nothing has to be sent. Trainer thread only,
// unless stated otherwise.

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/job/job.hpp"
#include "engine/network/compute_pool.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/training/step_means.hpp"
#include "nn/model_state.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {

/// PyTorch's default weight of the newest batch in the running statistics.
inline constexpr float kStatisticsRate = 0.1F;

class Committer {
 public:
  Committer(const Job& job, const ReductionLayout& layout)
      : job_(job), layout_(layout), means_(layout, job.microbatches) {}

  /// Applies the reduced step to the state: gradient mean over all microbatches, SGD, running
  /// statistics, exponents of the next step; state.committed grows by one, and the loss scale may.
  /// Returns the mean loss. The step was quantised with `exponents`; the threads of `pool` share
  /// large updates. If the pool updates on its device, parameters and momentum are updated there,
  /// with the same bits, and those of `state` are not changed (host_copy.hpp).
  float commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               ComputePool& pool, nn::ModelState& state) const;
  /// Commits a step without an update, because its gradients in fp16 are not finite and the loss
  /// scale can still be lowered. Only state.committed, which grows by one, and the loss scale,
  /// which falls, are changed. Returns the mean loss; a NaN if it was not finite, or too large for
  /// its exponent.
  float skip(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
             ComputePool& pool, nn::ModelState& state) const;
  /// Changes the state as commit() or skip() does, with the same bits, on the calling thread only.
  /// Any thread.
  void apply(const ObservedStep& observed, nn::ModelState& state) const;

 private:
  /// Computes the means of the blocks [first, last) and applies them. Threads may update different
  /// blocks at the same time.
  void update(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
              std::size_t first, std::size_t last, nn::ModelState& state) const;
  /// Applies the mean of one block in step `step`.
  void update_block(std::size_t block, std::span<const float> mean, float rate,
                    nn::ModelState& state) const;
  /// Counts a step, also in the loss scale.
  static void count_step(bool overflowed, nn::ModelState& state);
  [[nodiscard]] float rate_of(Step step) const;
  [[nodiscard]] nn::SgdOptions sgd() const;

  const Job& job_;
  const ReductionLayout& layout_;
  StepMeans means_;
};

}  // namespace mayfly::engine
