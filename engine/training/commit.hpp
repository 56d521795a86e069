#pragma once

// The commit of a step: its complete, finite gradient is applied to the state. Every member
// computes the same update from the same bits, so nothing has to be sent. Trainer thread only,
// unless stated otherwise.

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/training/compute_pool.hpp"
#include "nn/model_state.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {

/// PyTorch's default weight of the newest batch in the running statistics.
inline constexpr float kStatisticsRate = 0.1F;

/// A committed step as an observer keeps it until it has the state to which it is applied.
struct ObservedStep {
  Step step{};
  AlignedBuffer<float> means;  ///< of the whole vector: loss, statistics, gradients
  std::vector<std::int32_t> next_exponents;
  bool is_skipped = false;  ///< there was no update; `means` are not used
};

class Committer {
 public:
  Committer(const Job& job, const ReductionLayout& layout) : job_(job), layout_(layout) {}

  /// Applies the reduced step to the state: gradient mean over all microbatches, SGD, running
  /// statistics, exponents of the next step; state.committed grows by one, and the loss scale may.
  /// Returns the mean loss. `exponents` are those the step was quantised with; the threads of
  /// `pool` share large updates. If the pool updates on its device, parameters and momentum are
  /// updated there, to the same bits, and those of `state` stay as they are (host_copy.hpp).
  float commit(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               ComputePool& pool, nn::ModelState& state) const;
  /// A step whose gradients are not finite in fp16, with more than the least loss scale: it changes
  /// nothing but state.committed, which grows by one, and the loss scale, which falls. Returns the
  /// mean loss, a NaN if that was not finite, or too large for its exponent.
  float skip(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
             ComputePool& pool, nn::ModelState& state) const;
  [[nodiscard]] float loss_of_skipped(const GradientBuckets& reduced,
                                      std::span<const std::int32_t> exponents) const;
  /// A step with memory for its means. Any thread.
  [[nodiscard]] ObservedStep blank() const;
  /// Fills `observed` with everything that the update of its step needs. `observed.means` is
  /// allocated if empty. After reduced.fetch_sums().
  void observe(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               ComputePool& pool, ObservedStep& observed) const;
  /// Changes the state as commit() or skip() does, with the same bits, on the calling thread only.
  /// Any thread.
  void apply(const ObservedStep& observed, nn::ModelState& state) const;

 private:
  struct Range {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  /// Calls `function` for ranges of blocks, on the threads of `pool` if there are many blocks.
  template <typename Function>
  void for_all_blocks(ComputePool& pool, Function function) const;
  /// Means and updates of some blocks; different blocks may be updated at the same time.
  void update(const GradientBuckets& reduced, std::span<const std::int32_t> exponents, Range blocks,
              nn::ModelState& state) const;
  /// Applies the mean of one block in step `step`.
  void update_block(std::size_t block, std::span<const float> mean, float rate,
                    nn::ModelState& state) const;
  /// Counts a step, also in the loss scale.
  static void count_step(bool overflowed, nn::ModelState& state);
  [[nodiscard]] float rate_of(Step step) const;
  [[nodiscard]] nn::SgdOptions sgd() const;
  [[nodiscard]] float scale_of_mean() const { return 1.0F / static_cast<float>(job_.microbatches); }

  const Job& job_;
  const ReductionLayout& layout_;
};

}  // namespace mayfly::engine
