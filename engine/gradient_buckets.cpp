#include "engine/gradient_buckets.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

using collectives::DataType;
using collectives::ReduceOp;

constexpr std::size_t kBoundaryLane = 0;
// Members agree on a number exactly if its maximum equals minus the maximum of its negative.
constexpr std::size_t kStateLane = 1;
constexpr std::size_t kNegatedStateLane = 2;
constexpr std::int32_t kNoState = std::numeric_limits<std::int32_t>::min();
constexpr std::size_t kStepTimeLane = 3;
constexpr std::size_t kSignalLanes = 4;

}  // namespace

GradientBuckets::GradientBuckets(const ReductionLayout& layout, Wire wire,
                                 std::uint32_t microbatches, Trace* trace,
                                 elastic::ProgressBoard* board)
    : layout_(layout),
      exact_(is_exact(wire)),
      wire_(make_gradient_wire(wire, layout, microbatches)),
      signals_((exact_ ? layout.blocks().block_count() : 0) + kSignalLanes),
      lane_(lane_of(trace, "communication")),
      board_(board) {}

void GradientBuckets::start(collectives::Group& group, std::size_t bucket,
                            const GradientSums& sums) {
  const WireMessages messages = wire_->pack(bucket, sums);
  for (std::size_t m = 0; m < messages.count; ++m) {
    const WireMessage& message = messages.list[m];
    push(group.all_reduce(message.data, message.count, message.type, ReduceOp::kSum), bucket,
         m + 1 == messages.count);
  }
}

void GradientBuckets::start_signals(collectives::Group& group, const GradientSums& sums,
                                    StepSignals signals) {
  const std::size_t blocks = largest().size();
  if (exact_) {
    std::ranges::copy(sums.observed(), signals_.begin());
  }
  signals_[blocks + kBoundaryLane] = signals.ask_for_boundary ? 1 : 0;
  signals_[blocks + kStateLane] = signals_[blocks + kNegatedStateLane] = kNoState;
  if (signals.state_check.has_value()) {
    const auto state = static_cast<std::int32_t>(*signals.state_check & 0x7fffffffU);
    signals_[blocks + kStateLane] = state;
    signals_[blocks + kNegatedStateLane] = -state;
  }
  signals_[blocks + kStepTimeLane] = static_cast<std::int32_t>(signals.before_us & 0x7fffffffU);
  push(group.all_reduce(signals_.data(), signals_.size(), DataType::kInt32, ReduceOp::kMax),
       layout_.buckets().size(), false);
}

void GradientBuckets::push(std::unique_ptr<collectives::Work> work, std::size_t bucket,
                           bool ends_bucket) {
  const bool traced = lane_ != nullptr && lane_->recording();
  works_.push_back({std::move(work), bucket, ends_bucket, traced ? monotonic_now() : Instant{}});
}

// The group runs operations in order, so each one begins when it was started or when the one before
// ended, whichever is later.
void GradientBuckets::trace_operations(std::uint64_t step) const {
  Instant before;
  for (const Started& started : works_) {
    const Instant end = started.work->finished_at();
    if (started.at == Instant{} || end == Instant{}) {
      continue;
    }
    const bool signals = started.bucket == layout_.buckets().size();
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
    if (Result<void> outcome = started.work->wait(deadline); !outcome.ok()) {
      return outcome;
    }
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
  works_.clear();  // waits for what is still running, so that no buffer is written to afterwards
  if (!outcome.ok()) {
    return std::move(outcome).error();
  }
  ReducedStep reduced;
  reduced.totals = wire_->totals(exponents, largest());
  const std::size_t blocks = largest().size();
  reduced.boundary = signals_[blocks + kBoundaryLane] != 0;
  reduced.before_us = static_cast<std::uint32_t>(signals_[blocks + kStepTimeLane]);
  reduced.states_agree = -static_cast<std::int64_t>(signals_[blocks + kNegatedStateLane]) ==
                         signals_[blocks + kStateLane];
  reduced.state_check = static_cast<std::uint32_t>(signals_[blocks + kStateLane]);
  return reduced;
}

std::span<const std::int32_t> GradientBuckets::largest() const {
  return std::span(signals_).first(signals_.size() - kSignalLanes);
}

std::vector<std::int32_t> GradientBuckets::next_exponents(
    std::span<const std::int32_t> exponents) const {
  std::vector<std::int32_t> next(exponents.size());
  for (std::size_t b = 0; b < next.size(); ++b) {
    next[b] = wire_->next_exponent(b, exponents[b], largest()[b]);
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
