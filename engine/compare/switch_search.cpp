#include "engine/compare/switch_search.hpp"

#include <algorithm>
#include <numeric>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

}  // namespace

std::string to_text(SwitchVerdict verdict) {
  switch (verdict) {
    case SwitchVerdict::kOpen: return "open";
    case SwitchVerdict::kTarget: return "target";
    case SwitchVerdict::kAccepted: return "accepted";
    case SwitchVerdict::kRejected: return "rejected";
  }
  UNREACHABLE("every verdict has a text");
}

double SwitchPoint::mean_top1() const {
  return mean_of(top1);
}

double SwitchPoint::mean_seconds() const {
  return mean_of(seconds);
}

SwitchSearch::SwitchSearch(const SwitchSearchOptions& options)
    : options_(options), high_(options.steps) {
  ENSURE(options.steps >= 2 && options.runs >= 1, "a job can be switched, and is run");
  points_.push_back({.bsp_steps = options.steps});
}

std::optional<SwitchRun> SwitchSearch::next() const {
  if (over_) {
    return std::nullopt;
  }
  const SwitchPoint& point = points_.back();
  return SwitchRun{point.bsp_steps, options_.first_seed + point.top1.size() + point.failed};
}

/// At other points than the first the first failure decides: what may diverge is not as good.
void SwitchSearch::finished(std::optional<double> top1, double seconds) {
  ENSURE(!over_, "a run was asked for");
  SwitchPoint& point = points_.back();
  if (top1) {
    point.top1.push_back(*top1);
    point.seconds.push_back(seconds);
  } else {
    ++point.failed;
  }
  const bool is_first = points_.size() == 1;
  if (point.top1.size() + point.failed == options_.runs || (!is_first && point.failed > 0)) {
    judge();
  }
}

void SwitchSearch::judge() {
  SwitchPoint& point = points_.back();
  if (points_.size() == 1) {
    point.verdict = SwitchVerdict::kTarget;
    is_void_ = point.top1.empty();
  } else if (point.failed == 0 &&
             point.mean_top1() >= points_.front().mean_top1() - options_.tolerance) {
    point.verdict = SwitchVerdict::kAccepted;
    high_ = point.bsp_steps;
  } else {
    point.verdict = SwitchVerdict::kRejected;
    low_ = point.bsp_steps;
  }
  try_next();
}

void SwitchSearch::try_next() {
  const std::uint64_t middle = low_ + (high_ - low_) / 2;
  over_ = is_void_ || middle == low_ || points_.size() > options_.probes;
  if (!over_) {
    points_.push_back({.bsp_steps = middle});
  }
}

const SwitchPoint& SwitchSearch::best() const {
  const SwitchPoint* best = &points_.front();
  for (const SwitchPoint& point : points_) {
    const bool is_accepted = point.verdict == SwitchVerdict::kAccepted;
    best = is_accepted && point.bsp_steps < best->bsp_steps ? &point : best;
  }
  return *best;
}

}  // namespace mayfly::engine
