#include "elastic/core/rebalance.hpp"

#include <algorithm>

#include "elastic/core/assignment.hpp"

namespace mayfly::elastic {
namespace {

/// Changes that follow each other within so many intervals are not what they promised to be.
constexpr int kFrequentIntervals = 4;

float slowest(const std::vector<float>& times, const std::vector<std::uint32_t>& counts) {
  float most = 0;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    most = std::max(most, times[rank] * static_cast<float>(counts[rank]));
  }
  return most;
}

}  // namespace

std::optional<Rebalance> Rebalancer::worthwhile(const std::vector<Load>& loads) const {
  std::vector<float> times;
  std::vector<std::uint32_t> counts;
  std::uint32_t microbatches = 0;
  for (const Load& load : loads) {
    if (!(load.microbatch_ms > 0)) {
      return std::nullopt;
    }
    times.push_back(load.microbatch_ms);
    counts.push_back(load.count);
    microbatches += load.count;
  }
  if (loads.size() < 2 || microbatches == 0) {
    return std::nullopt;
  }
  Rebalance change;
  for (const MicrobatchRange& range : proportional_ranges(times, microbatches)) {
    change.counts.push_back(range.count);
  }
  change.before_ms = slowest(times, counts);
  change.after_ms = slowest(times, change.counts);
  const double gain = 1.0 - static_cast<double>(change.after_ms) / change.before_ms;
  const bool is_repaid = gain * to_seconds(options_.repaid_within) >= to_seconds(cost_);
  return gain >= options_.gain_min && is_repaid ? std::optional(std::move(change)) : std::nullopt;
}

std::optional<Rebalance> Rebalancer::judge(Instant now, const std::vector<Load>& loads) {
  if (!options_.enabled) {
    return std::nullopt;
  }
  std::optional<Rebalance> change = worthwhile(loads);
  if (!change) {
    seen_since_.reset();
    return std::nullopt;
  }
  if (!seen_since_) {
    seen_since_ = now;
  }
  const bool is_too_soon = changed_at_ && now - *changed_at_ < interval_;
  if (now - *seen_since_ < options_.sustained || is_too_soon) {
    return std::nullopt;
  }
  changed(now);
  return change;
}

void Rebalancer::changed(Instant now) {
  const bool is_frequent = changed_at_ && now - *changed_at_ < kFrequentIntervals * interval_;
  interval_ = is_frequent ? std::min(2 * interval_, options_.interval_max) : options_.interval;
  changed_at_ = now;
  seen_since_.reset();
}

}  // namespace mayfly::elastic
