#pragma once

// The all-reduce of a step's sums, bucket by bucket while the backward pass is still running. It
// works in buffers of its own (gradient_wire.hpp); the worker's own sums stay unchanged in
// GradientSums. Trainer thread only.

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

/// Facts about the member that was the last to be ready for a step's reduction, which it sends in
/// the next step.
struct SlowestMember {
  Rank rank{};
  std::uint32_t ready_us = 0;  ///< from the previous commit until it was ready
  // The part of that time in which its compute threads waited for data, in the mean
  // (datasets/feed.hpp, LoaderWait):
  std::uint32_t fetch_us = 0;
  std::uint32_t prep_us = 0;
};

/// How long members waited for each other in the exchange of a step, from the moment when the last
/// of them was ready for it. All other members wait for one that is slow in the exchange, so that
/// one waits least.
struct ExchangeWaits {
  Rank least{};  ///< the member that waited least; of several the one with the highest rank
  std::uint32_t least_us = 0;
  std::uint32_t most_us = 0;  ///< of any member
};

/// A member sends its own values; the result has the maxima over all members.
struct ReadySignals {
  std::uint32_t ready_us = 0;  ///< as in SlowestMember, in this step; 0 = first of the view
  /// Set if this member was the slowest of the previous step. If several were equally slow to the
  /// microsecond, the result mixes their values.
  std::optional<SlowestMember> slowest_before;
  std::optional<ExchangeWaits> waits_before;  ///< in the exchange of the step before
};

/// The signals that a member sends in the reduction, besides its sums.
struct StepSignals {
  bool ask_for_boundary = false;       ///< this member was told to stop the view at a step boundary
  std::uint32_t previous_step_us = 0;  ///< duration of the step before; 0 = first of the view
  /// Low bits of a digest of the state that this step started from; none from a member that does
  /// not have it.
  std::optional<std::uint32_t> state_check = 0;
  /// Low bits of the hash of the result of the step's audited microbatch; none from a member that
  /// has not computed it.
  std::optional<std::uint32_t> audit_check;
  ReadySignals ready;
};

/// The result of the reduction.
struct ReducedStep {
  StepTotals totals;
  bool boundary = false;               ///< at least one member asked for a boundary
  std::uint32_t previous_step_us = 0;  ///< of the slowest member
  bool states_agree = true;            ///< every member started from the same state
  std::uint32_t state_check = 0;       ///< the digest they agree on, 31 bits; 0 if none was sent
  bool results_agree = true;           ///< all results of the audited microbatch are the same
  ReadySignals ready;

  /// Whether a gradient, statistic or loss is not finite, so that the step must make no update.
  [[nodiscard]] bool skips_update() const { return totals.nonfinite > 0; }
};

class GradientBuckets {
 public:
  /// `microbatches`: of a step, over all members. `trace` may be null; the operations get a lane of
  /// their own. `board` may be null; it shows for which bucket the trainer waits. `device` has the
  /// sums of parameters if it is not null; groups must then have a part on the device.
  GradientBuckets(const ReductionLayout& layout, Wire wire, std::uint32_t microbatches,
                  Trace* trace = nullptr, elastic::ProgressBoard* board = nullptr,
                  collectives::DeviceSums* device = nullptr);

  /// To be called when a view of `members` members begins.
  void begin_view(std::uint32_t members) { wire_->begin_view(members); }
  /// Starts the all-reduce of a bucket whose sums are complete and settled. To be called for the
  /// buckets in the order of ReductionLayout::buckets().
  void start(collectives::Group& group, std::size_t bucket, const GradientSums& sums);
  /// After the last bucket: starts the exchange of exponents and signals.
  void start_signals(collectives::Group& group, const GradientSums& sums, StepSignals signals);
  /// Waits for all operations that were started. `exponents` are those with which the sums were
  /// quantised; `step` is for the trace and the board; 0 = neither. After a failure the functions
  /// below must not be called, and the group does not access any buffer after this returns.
  [[nodiscard]] Result<ReducedStep> finish(std::span<const std::int32_t> exponents,
                                           Instant deadline, std::uint64_t step = 0);

  // To be called after finish() has succeeded:
  /// To be called before mean() of blocks of parameters, if their sums are on a device.
  void fetch_sums() { wire_->fetch_sums(); }
  /// The mean gradient (or loss, or statistic) of a block's elements: sum times `scale`.
  void mean(std::size_t block, std::span<const std::int32_t> exponents, float scale,
            std::span<float> out) const {
    wire_->mean(block, exponents, scale, out);
  }
  /// Whether mean() of a block is valid: false if some value was too large for the exponent.
  [[nodiscard]] bool fits(std::size_t block, std::span<const std::int32_t> exponents) const {
    return !exact_ || largest()[block] <= exponents[block];
  }
  /// The exponents of the step after `step`, which was reduced.
  [[nodiscard]] std::vector<std::int32_t> next_exponents(
      Step step, std::span<const std::int32_t> exponents) const;
  /// The exponents of another attempt at the reduced step, if blocks overflowed.
  [[nodiscard]] std::vector<std::int32_t> raised_exponents(
      std::span<const std::int32_t> exponents) const;

 private:
  struct Started {
    std::unique_ptr<collectives::Work> work = {};
    std::size_t bucket = 0;    // equal to the number of buckets for exponents and signals
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
  collectives::Group* group_ = nullptr;  // the group of works_
};

}  // namespace mayfly::engine
