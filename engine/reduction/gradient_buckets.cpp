#include "engine/reduction/gradient_buckets.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "base/gpu_facts.hpp"

namespace mayfly::engine {
namespace {

using collectives::DataType;
using collectives::ReduceOp;

constexpr std::size_t kBoundaryLane = 0;
// All members sent the same number if and only if the maximum equals minus the maximum of the
// negatives. Therefore a number that is compared has two lanes, one for its negative.
constexpr std::size_t kStateLanes = 1;
constexpr std::int32_t kNothing = std::numeric_limits<std::int32_t>::min();
constexpr std::size_t kStepTimeLane = 3;
constexpr std::size_t kAuditLanes = 4;
constexpr std::size_t kReadyLane = 6;
constexpr std::size_t kSlowestLanes = 7;  // rank and microseconds as in SlowestMember
constexpr std::size_t kWaitLanes = 11;    // rank with the least wait, minus that wait, longest wait
constexpr std::size_t kSignalLanes = 14;
constexpr std::uint32_t kRankBits = 16;
constexpr std::uint32_t kShortWaitMax = 0x7fff;

using Lanes = std::span<std::int32_t, 2>;

void put_check(std::optional<std::uint32_t> check, Lanes lanes) {
  const auto bits = static_cast<std::int32_t>(check.value_or(0) & 0x7fffffffU);
  lanes[0] = check.has_value() ? bits : kNothing;
  lanes[1] = check.has_value() ? -bits : kNothing;
}

bool is_agreed(Lanes lanes) {
  return lanes[0] == kNothing || -static_cast<std::int64_t>(lanes[1]) == lanes[0];
}

/// The eleven most significant bits of a time below 2^30, encoded so that longer times stay larger.
std::uint32_t shortened(std::uint32_t us) {
  const int width = std::bit_width(us);
  const auto shift = static_cast<std::uint32_t>(std::max(0, width - 11));
  return (shift << 10U) + (us >> shift);
}

/// A number that is the larger the shorter the wait is. It contains the rank, so that the maximum
/// shows which member waited least.
std::int32_t order_of(const ExchangeWaits& waits) {
  static_assert(elastic::kMembersMax <= 1U << kRankBits);
  return static_cast<std::int32_t>((kShortWaitMax - shortened(waits.least_us)) << kRankBits |
                                   value(waits.least));
}

void put_ready(const ReadySignals& ready, std::span<std::int32_t, kSignalLanes> lanes) {
  const std::optional<SlowestMember>& slowest = ready.slowest_before;
  lanes[kReadyLane] = static_cast<std::int32_t>(ready.ready_us);
  lanes[kSlowestLanes] = slowest ? static_cast<std::int32_t>(value(slowest->rank)) : kNothing;
  lanes[kSlowestLanes + 1] = slowest ? static_cast<std::int32_t>(slowest->ready_us) : kNothing;
  lanes[kSlowestLanes + 2] = slowest ? static_cast<std::int32_t>(slowest->fetch_us) : kNothing;
  lanes[kSlowestLanes + 3] = slowest ? static_cast<std::int32_t>(slowest->prep_us) : kNothing;
  const std::optional<ExchangeWaits>& waits = ready.waits_before;
  lanes[kWaitLanes] = waits ? order_of(*waits) : kNothing;
  lanes[kWaitLanes + 1] = waits ? -static_cast<std::int32_t>(waits->least_us) : kNothing;
  lanes[kWaitLanes + 2] = waits ? static_cast<std::int32_t>(waits->most_us) : kNothing;
}

ReadySignals ready_in(std::span<const std::int32_t, kSignalLanes> lanes) {
  ReadySignals ready;
  ready.ready_us = static_cast<std::uint32_t>(lanes[kReadyLane]);
  if (lanes[kSlowestLanes] != kNothing) {
    ready.slowest_before = {Rank{static_cast<std::uint32_t>(lanes[kSlowestLanes])},
                            static_cast<std::uint32_t>(lanes[kSlowestLanes + 1]),
                            static_cast<std::uint32_t>(lanes[kSlowestLanes + 2]),
                            static_cast<std::uint32_t>(lanes[kSlowestLanes + 3])};
  }
  if (lanes[kWaitLanes] != kNothing) {
    const auto order = static_cast<std::uint32_t>(lanes[kWaitLanes]);
    ready.waits_before = {Rank{order & ((1U << kRankBits) - 1)},
                          static_cast<std::uint32_t>(-lanes[kWaitLanes + 1]),
                          static_cast<std::uint32_t>(lanes[kWaitLanes + 2])};
  }
  return ready;
}

std::unique_ptr<collectives::Work> start_operation(collectives::Group& group,
                                                   const WireMessage& message) {
  if (!message.on_device) {
    return group.all_reduce(message.data, message.count, message.type, ReduceOp::kSum);
  }
  collectives::DeviceGroup* const device = group.on_device();
  ENSURE(device != nullptr, "sums on the device go through a group that has a part there");
  require_gpu(device->follow(message.behind));
  return device->all_reduce(message.data, message.count, message.type, ReduceOp::kSum);
}

}  // namespace

GradientBuckets::GradientBuckets(const ReductionLayout& layout, Wire wire,
                                 std::uint32_t microbatches, Trace* trace,
                                 elastic::ProgressBoard* board, collectives::DeviceSums* device)
    : layout_(layout),
      exact_(is_exact(wire)),
      wire_(make_gradient_wire(wire, layout, microbatches, device)),
      signals_((exact_ ? layout.blocks().block_count() : 0) + kSignalLanes),
      lane_(lane_of(trace, "communication")),
      board_(board) {}

void GradientBuckets::start(collectives::Group& group, std::size_t bucket,
                            const GradientSums& sums) {
  ENSURE(works_.empty() || works_.back().bucket < bucket,
         "all members begin the operations of one step in the same order");
  group_ = &group;
  const WireMessages messages = wire_->pack(bucket, sums);
  for (std::size_t m = 0; m < messages.count; ++m) {
    const WireMessage& message = messages.list[m];
    push({.work = start_operation(group, message),
          .bucket = bucket,
          .ends_bucket = m + 1 == messages.count,
          .on_device = message.on_device});
  }
}

void GradientBuckets::start_signals(collectives::Group& group, const GradientSums& sums,
                                    StepSignals signals) {
  group_ = &group;
  const std::size_t blocks = largest().size();
  if (exact_) {
    std::ranges::copy(sums.observed(), signals_.begin());
  }
  signals_[blocks + kBoundaryLane] = signals.ask_for_boundary ? 1 : 0;
  put_check(signals.state_check, lanes_at(kStateLanes));
  put_check(signals.audit_check, lanes_at(kAuditLanes));
  signals_[blocks + kStepTimeLane] =
      static_cast<std::int32_t>(signals.previous_step_us & 0x7fffffffU);
  put_ready(signals.ready, std::span(signals_).last<kSignalLanes>());
  push(
      {.work = group.all_reduce(signals_.data(), signals_.size(), DataType::kInt32, ReduceOp::kMax),
       .bucket = layout_.buckets().size()});
}

void GradientBuckets::push(Started started) {
  const bool traced = lane_ != nullptr && lane_->recording();
  started.at = traced ? monotonic_now() : Instant{};
  works_.push_back(std::move(started));
}

// The group, and its part on the device, run operations in order. So each operation begins when it
// was started or when the previous one ended, whichever is later.
void GradientBuckets::trace_operations(std::uint64_t step) const {
  std::array<Instant, 2> last;
  for (const Started& started : works_) {
    const Instant end = started.work->finished_at();
    if (started.at == Instant{} || end == Instant{}) {
      continue;
    }
    const bool signals = started.bucket == layout_.buckets().size();
    Instant& before = last[started.on_device ? 1 : 0];
    lane_->span(signals ? "all-reduce signals" : "all-reduce", std::max(started.at, before), end,
                step, {"bucket", static_cast<std::int64_t>(started.bucket)});
    before = end;
  }
}

Result<void> GradientBuckets::wait_for_all(Instant deadline, Step step) {
  for (const Started& started : works_) {
    if (board_ != nullptr && step != Step{}) {
      board_->enter(elastic::Activity::kExchange, step, static_cast<std::uint32_t>(started.bucket));
    }
    TRY(group_->wait_or_abort(*started.work, deadline));
    if (started.ends_bucket) {
      wire_->arrived(started.bucket);
    }
  }
  return {};
}

Result<ReducedStep> GradientBuckets::finish(std::span<const std::int32_t> exponents,
                                            Instant deadline, std::uint64_t step) {
  Result<void> outcome = wait_for_all(deadline, Step{step});
  if (lane_ != nullptr && outcome.ok()) {
    trace_operations(step);
  }
  works_.clear();  // waits for running operations, so that none writes to a buffer afterwards
  if (!outcome.ok()) {
    return std::move(outcome).error();
  }
  ReducedStep reduced;
  reduced.totals = wire_->totals(exponents, largest());
  const std::size_t blocks = largest().size();
  reduced.boundary = signals_[blocks + kBoundaryLane] != 0;
  reduced.previous_step_us = static_cast<std::uint32_t>(signals_[blocks + kStepTimeLane]);
  reduced.states_agree = is_agreed(lanes_at(kStateLanes));
  reduced.state_check = static_cast<std::uint32_t>(lanes_at(kStateLanes)[0]);
  reduced.results_agree = is_agreed(lanes_at(kAuditLanes));
  reduced.ready = ready_in(std::span(signals_).last<kSignalLanes>());
  return reduced;
}

std::span<std::int32_t, 2> GradientBuckets::lanes_at(std::size_t lane) {
  return std::span(signals_).subspan(signals_.size() - kSignalLanes + lane).first<2>();
}

std::span<const std::int32_t> GradientBuckets::largest() const {
  return std::span(signals_).first(signals_.size() - kSignalLanes);
}

std::vector<std::int32_t> GradientBuckets::next_exponents(
    Step step, std::span<const std::int32_t> exponents) const {
  std::vector<std::int32_t> next(exponents.size());
  for (std::size_t b = 0; b < next.size(); ++b) {
    next[b] = wire_->next_exponent(step, b, exponents[b], largest()[b]);
  }
  return next;
}

std::vector<std::int32_t> GradientBuckets::raised_exponents(
    std::span<const std::int32_t> exponents) const {
  std::vector<std::int32_t> raised(exponents.size());
  for (std::size_t b = 0; b < raised.size(); ++b) {
    raised[b] = wire_->raised_exponent(b, exponents[b], largest()[b]);
  }
  return raised;
}

}  // namespace mayfly::engine
