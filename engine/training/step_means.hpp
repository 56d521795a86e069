#pragma once

// Converts the sums of a committed step to means over all microbatches: of loss, statistics and
// gradients, in the order of ReductionLayout. An observer keeps the means of each step until it has
// the state to which they are applied. Trainer thread only, unless stated otherwise.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/ids.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/training/computer.hpp"

namespace mayfly::engine {

/// A committed step as an observer keeps it until it has the state to which it is applied.
struct ObservedStep {
  Step step{};
  AlignedBuffer<float> means;  ///< of the whole vector: loss, statistics, gradients
  std::vector<std::int32_t> next_exponents;
  bool is_skipped = false;  ///< there was no update; `means` are not used
};

/// Work on the blocks [first, last) of a layout; different blocks are worked on at the same time.
using BlocksFunction = std::function<void(std::size_t first, std::size_t last)>;

class StepMeans {
 public:
  /// `microbatches`: of a step, over all members. `layout` outlives it.
  StepMeans(const ReductionLayout& layout, std::uint32_t microbatches)
      : layout_(layout), scale_(1.0F / static_cast<float>(microbatches)) {}

  /// The factor from a sum over all microbatches to their mean.
  [[nodiscard]] float scale() const { return scale_; }
  /// The mean loss; a NaN if it was not finite, or too large for its exponent. The step was
  /// quantised with `exponents`.
  [[nodiscard]] float loss(const GradientBuckets& reduced,
                           std::span<const std::int32_t> exponents) const;
  /// A step with memory for its means. Any thread.
  [[nodiscard]] ObservedStep blank() const;
  /// Fills `observed`, whose number is set, with everything that the update of its step needs.
  /// `observed.means` is allocated if empty. After reduced.fetch_sums(). The threads of `computer`
  /// share large ones.
  void observe(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
               Computer& computer, ObservedStep& observed) const;
  /// Calls `function` for all blocks: once, or on the threads of `computer` if there are many.
  void for_all_blocks(Computer& computer, const BlocksFunction& function) const;

 private:
  const ReductionLayout& layout_;
  float scale_;
};

}  // namespace mayfly::engine
