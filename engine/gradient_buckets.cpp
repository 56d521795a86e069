#include "engine/gradient_buckets.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

using collectives::DataType;
using collectives::ReduceOp;

constexpr std::size_t kBoundaryLane = 0;
// Members agree on a number exactly if its maximum equals minus the maximum of its negative.
constexpr std::size_t kStateLane = 1;
constexpr std::size_t kNegatedStateLane = 2;
constexpr std::size_t kSignalLanes = 3;

}  // namespace

GradientBuckets::GradientBuckets(const ReductionLayout& layout, bool exact, Trace* trace)
    : layout_(layout),
      exact_(exact),
      buffer_(kTotalsWords + layout.element_count()),
      signals_(layout.blocks().block_count() + kSignalLanes),
      lane_(lane_of(trace, "communication")) {
  works_.reserve(layout.buckets().size() + 2);
}

void GradientBuckets::start(collectives::Group& group, std::size_t bucket,
                            const GradientSums& sums) {
  const ReductionLayout::Bucket& range = layout_.buckets()[bucket];
  const bool last = bucket + 1 == layout_.buckets().size();
  std::uint32_t* vector = buffer_.data() + kTotalsWords;
  std::memcpy(vector + range.first, sums.words().data() + range.first,
              (range.last - range.first) * sizeof(std::uint32_t));
  if (!last) {
    push(group.all_reduce(vector + range.first, range.last - range.first,
                          exact_ ? DataType::kInt32 : DataType::kFloat32, ReduceOp::kSum),
         bucket);
    return;
  }
  const StepTotals totals = sums.totals();
  std::memcpy(buffer_.data(), &totals, sizeof totals);
  if (exact_) {  // the totals ride in front of the last bucket
    push(group.all_reduce(buffer_.data(), kTotalsWords + range.last, DataType::kInt32,
                          ReduceOp::kSum),
         bucket);
  } else {
    push(group.all_reduce(buffer_.data(), kTotalsWords, DataType::kInt32, ReduceOp::kSum), bucket);
    push(group.all_reduce(vector, range.last, DataType::kFloat32, ReduceOp::kSum), bucket);
  }
}

void GradientBuckets::start_signals(collectives::Group& group, const GradientSums& sums,
                                    StepSignals signals) {
  const std::size_t blocks = layout_.blocks().block_count();
  std::ranges::copy(sums.observed(), signals_.begin());
  const auto state = static_cast<std::int32_t>(signals.state_check & 0x7fffffffU);
  signals_[blocks + kBoundaryLane] = signals.ask_for_boundary ? 1 : 0;
  signals_[blocks + kStateLane] = state;
  signals_[blocks + kNegatedStateLane] = -state;
  push(group.all_reduce(signals_.data(), signals_.size(), DataType::kInt32, ReduceOp::kMax),
       layout_.buckets().size());
}

void GradientBuckets::push(std::unique_ptr<collectives::Work> work, std::size_t bucket) {
  const bool traced = lane_ != nullptr && lane_->recording();
  works_.push_back(
      {std::move(work), static_cast<std::int64_t>(bucket), traced ? monotonic_now() : Instant{}});
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
    const bool signals = started.bucket == static_cast<std::int64_t>(layout_.buckets().size());
    lane_->span(signals ? "all-reduce signals" : "all-reduce", std::max(started.at, before), end,
                step, {"bucket", started.bucket});
    before = end;
  }
}

Result<ReducedStep> GradientBuckets::finish(Instant deadline, std::uint64_t step) {
  Result<void> outcome;
  for (const Started& started : works_) {
    if (outcome = started.work->wait(deadline); !outcome.ok()) {
      break;
    }
  }
  if (lane_ != nullptr && outcome.ok()) {
    trace_operations(step);
  }
  works_.clear();  // waits for what is still running, so that no buffer is written to afterwards
  if (!outcome.ok()) {
    return std::move(outcome).error();
  }
  ReducedStep reduced;
  std::array<std::uint32_t, sizeof(StepTotals) / sizeof(std::uint32_t)> totals{};
  std::copy_n(buffer_.data(), totals.size(), totals.begin());
  reduced.totals = std::bit_cast<StepTotals>(totals);
  const std::size_t blocks = layout_.blocks().block_count();
  reduced.boundary = signals_[blocks + kBoundaryLane] != 0;
  reduced.states_agree = signals_[blocks + kStateLane] == -signals_[blocks + kNegatedStateLane];
  return reduced;
}

std::span<const std::uint32_t> GradientBuckets::words() const {
  return buffer_.span().subspan(kTotalsWords);
}

std::span<const std::int32_t> GradientBuckets::observed() const {
  return std::span(signals_).first(layout_.blocks().block_count());
}

}  // namespace mayfly::engine
