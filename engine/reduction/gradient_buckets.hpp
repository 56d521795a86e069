#pragma once

// Sends the step's sums through the group, bucket by bucket while backward still runs. The buffers
// here belong to the all-reduce; the worker's own sums stay untouched in GradientSums.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/net/progress_board.hpp"
#include "engine/reduction/gradient_sums.hpp"
#include "engine/reduction/gradient_wire.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/run/trace.hpp"

namespace mayfly::engine {

/// What a member tells the others inside the reduction, besides its sums.
struct StepSignals {
  bool ask_for_boundary = false;       ///< somebody was told to stop the view at a step boundary
  std::uint32_t previous_step_us = 0;  ///< what the step before took; 0 = the first of the view
  /// Low bits of a digest of the state this step started from; none from a member that lacks it.
  std::optional<std::uint32_t> state_check = 0;
  /// Low bits of the hash of what the step's audited microbatch comes to; none from a member that
  /// has not computed it.
  std::optional<std::uint32_t> audit_check;
};

/// The group's answer.
struct ReducedStep {
  StepTotals totals;
  bool boundary = false;               ///< at least one member asked for a boundary
  std::uint32_t previous_step_us = 0;  ///< the slowest member's
  bool states_agree = true;            ///< every member started from the same state
  std::uint32_t state_check = 0;       ///< what they agree on, 31 bits; 0 if nobody looked
  bool results_agree = true;           ///< all who computed the audited microbatch got the same

  /// Some gradient, statistic or loss is not finite: nothing may be updated with them.
  [[nodiscard]] bool skips_update() const { return totals.nonfinite > 0; }
};

class GradientBuckets {
 public:
  /// `microbatches`: of a step, all members together. `trace` may be null; it gets a lane of its
  /// own for the operations. `board` may be null; it is told which bucket is waited for. `device`
  /// has the sums of parameters if it is not null; groups must then have a part on the device.
  GradientBuckets(const ReductionLayout& layout, Wire wire, std::uint32_t microbatches,
                  Trace* trace = nullptr, elastic::ProgressBoard* board = nullptr,
                  collectives::DeviceSums* device = nullptr);

  /// A view of `members` begins.
  void begin_view(std::uint32_t members) { wire_->begin_view(members); }
  /// Starts the all-reduce of a bucket whose sums are complete and settled. In the order of
  /// ReductionLayout::buckets().
  void start(collectives::Group& group, std::size_t bucket, const GradientSums& sums);
  /// After the last bucket: starts the exchange of exponents and signals.
  void start_signals(collectives::Group& group, const GradientSums& sums, StepSignals signals);
  /// Waits for everything started. `exponents` are those that the sums were quantised with; `step`
  /// is for the trace and the board; 0 = neither. On failure nothing in here may be used any more,
  /// and no buffer is touched by the group after this returns.
  [[nodiscard]] Result<ReducedStep> finish(std::span<const std::int32_t> exponents,
                                           Instant deadline, std::uint64_t step = 0);

  // After finish() succeeded:
  /// Before mean() of parameters' blocks, if their sums are on a device.
  void fetch_sums() { wire_->fetch_sums(); }
  /// The mean gradient (or loss, or statistic) of a block's elements: sum times `scale`.
  void mean(std::size_t block, std::span<const std::int32_t> exponents, float scale,
            std::span<float> out) const {
    wire_->mean(block, exponents, scale, out);
  }
  /// Whether mean() of a block means anything: false if some of it was too large for its exponent.
  [[nodiscard]] bool fits(std::size_t block, std::span<const std::int32_t> exponents) const {
    return !exact_ || largest()[block] <= exponents[block];
  }
  /// The exponents of the step after `step`, which was reduced, or of another attempt at it if
  /// blocks overflowed.
  [[nodiscard]] std::vector<std::int32_t> next_exponents(
      Step step, std::span<const std::int32_t> exponents) const;
  [[nodiscard]] std::vector<std::int32_t> raised_exponents(
      std::span<const std::int32_t> exponents) const;

 private:
  struct Started {
    std::unique_ptr<collectives::Work> work = {};
    std::size_t bucket = 0;    // the number of buckets: exponents and signals
    bool ends_bucket = false;  // the last message of its bucket
    bool on_device = false;
    Instant at = {};  // zero without a trace
  };
  void push(Started started);
  [[nodiscard]] Result<void> wait_for_all(Instant deadline, Step step);
  void trace_operations(std::uint64_t step) const;
  [[nodiscard]] std::span<const std::int32_t> largest() const;
  [[nodiscard]] std::span<std::int32_t, 2> lanes_at(std::size_t lane);

  const ReductionLayout& layout_;
  bool exact_;
  std::unique_ptr<GradientWire> wire_;
  std::vector<std::int32_t> signals_;  // exponents observed (exact only), then the lanes
  TraceLane* lane_;                    // null without a trace
  elastic::ProgressBoard* board_;      // null = none
  std::vector<Started> works_;
};

}  // namespace mayfly::engine
