#pragma once

// Sends the step's sums through the group, bucket by bucket while backward still runs. The buffers
// here belong to the all-reduce; the worker's own sums stay untouched in GradientSums.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "engine/gradient_sums.hpp"
#include "engine/reduction_layout.hpp"
#include "engine/trace.hpp"

namespace mayfly::engine {

/// What a member tells the others inside the reduction, besides its sums.
struct StepSignals {
  bool ask_for_boundary = false;  ///< somebody was told to stop the view at a step boundary
  std::uint32_t state_check = 0;  ///< low bits of a digest of the state this step started from
};

/// The group's answer.
struct ReducedStep {
  StepTotals totals;
  bool boundary = false;     ///< at least one member asked for a boundary
  bool states_agree = true;  ///< every member started from the same state
};

class GradientBuckets {
 public:
  /// `trace` may be null; it gets a lane of its own for the operations.
  GradientBuckets(const ReductionLayout& layout, bool exact, Trace* trace = nullptr);

  /// Starts the all-reduce of a bucket whose sums are complete. In the order of
  /// ReductionLayout::buckets().
  void start(collectives::Group& group, std::size_t bucket, const GradientSums& sums);
  /// After the last bucket: starts the exchange of exponents and signals.
  void start_signals(collectives::Group& group, const GradientSums& sums, StepSignals signals);
  /// Waits for everything started; `step` is for the trace. On failure nothing in here may be used
  /// any more, and no buffer is touched by the group after this returns.
  [[nodiscard]] Result<ReducedStep> finish(Instant deadline, std::uint64_t step = 0);

  /// The reduced sums (int32 or float words) and exponents; valid after finish() succeeded.
  [[nodiscard]] std::span<const std::uint32_t> words() const;
  [[nodiscard]] std::span<const std::int32_t> observed() const;

 private:
  static constexpr std::size_t kTotalsWords = 16;  // eight used; keeps the vector aligned

  const ReductionLayout& layout_;
  bool exact_;
  AlignedBuffer<std::uint32_t> buffer_;  // totals, then the vector
  std::vector<std::int32_t> signals_;    // observed exponents, then three lanes
  struct Started {
    std::unique_ptr<collectives::Work> work;
    std::int64_t bucket = 0;  // the number of buckets: exponents and signals
    Instant at;               // zero without a trace
  };
  void push(std::unique_ptr<collectives::Work> work, std::size_t bucket);
  void trace_operations(std::uint64_t step) const;

  TraceLane* lane_;  // null without a trace
  std::vector<Started> works_;
};

}  // namespace mayfly::engine
