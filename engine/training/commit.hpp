#pragma once

// The point of no return: a step whose reduced gradient is complete and clean is applied to the
// state. Every member computes the same thing from the same bits, so nothing has to be sent.

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

/// A committed step without the state that it changes: what an observer keeps until it has that.
struct ObservedStep {
  Step step{};
  AlignedBuffer<float> means;  ///< of the whole vector: loss, statistics, gradients
  std::vector<std::int32_t> next_exponents;
  bool is_skipped = false;  ///< there was no update, and `means` are nothing
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
  /// Room for a step's means. Any thread.
  [[nodiscard]] ObservedStep blank() const;
  /// Everything that the update of `observed.step` needs. `observed.means` is allocated if empty.
  /// After reduced.fetch_sums().
  void observe(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               ComputePool& pool, ObservedStep& observed) const;
  /// The same change of the state, bit for bit, as commit() or skip() makes; on the calling thread
  /// alone.
  void apply(const ObservedStep& observed, nn::ModelState& state) const;

 private:
  struct Range {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  /// Lets the threads of `pool` share what is to be done with blocks, if there are many.
  template <typename Function>
  void for_all_blocks(ComputePool& pool, Function function) const;
  /// Means and updates of some blocks; different blocks may be updated at the same time.
  void update(const GradientBuckets& reduced, std::span<const std::int32_t> exponents, Range blocks,
              nn::ModelState& state) const;
  /// Applies the mean of one block in step `step`.
  void update_block(std::size_t block, std::span<const float> mean, float rate,
                    nn::ModelState& state) const;
  /// Counts a step, in the loss scale, too.
  static void count_step(bool overflowed, nn::ModelState& state);
  [[nodiscard]] float rate_of(Step step) const;
  [[nodiscard]] nn::SgdOptions sgd() const;
  [[nodiscard]] float scale_of_mean() const { return 1.0F / static_cast<float>(job_.microbatches); }

  const Job& job_;
  const ReductionLayout& layout_;
};

}  // namespace mayfly::engine
