#include "planner/simulation/summary.hpp"

#include <cmath>

#include "base/check.hpp"
#include "base/statistics.hpp"
#include "planner/simulation/path.hpp"

namespace mayfly::planner {
namespace {

Share share_of(std::size_t count, std::size_t all) {
  const auto n = static_cast<double>(all);
  const double pulled = (static_cast<double>(count) + 2) / (n + 4);
  return {static_cast<double>(count) / n, std::sqrt(pulled * (1 - pulled) / (n + 4))};
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  if (values.empty()) {
    return spread;
  }
  const auto n = static_cast<double>(values.size());
  for (const double value : values) {
    spread.mean += value / n;
  }
  double squares = 0;
  for (const double value : values) {
    squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.error = values.size() > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
  spread.low = percentile(values, 0.05);
  spread.median = percentile(values, 0.5);
  spread.high = percentile(values, 0.95);
  return spread;
}

Summary summarise(std::span<const PathOutcome> paths, std::optional<double> deadline_s,
                  std::optional<double> budget) {
  ENSURE(!paths.empty(), "there are paths to sum up");
  Summary summary;
  summary.paths = paths.size();
  const double weight = 1 / static_cast<double>(paths.size());
  std::vector<double> times;
  std::vector<double> costs;
  std::vector<double> taken;
  std::size_t in_time = 0;
  std::size_t in_budget = 0;
  std::size_t reached = 0;
  std::size_t stopped = 0;
  for (const PathOutcome& path : paths) {
    const bool finished = path.finish_s < kNever;
    const bool timely = finished && (!deadline_s || path.finish_s <= *deadline_s);
    const bool cheap = finished && (!budget || path.cost <= *budget);
    if (finished) {
      times.push_back(path.finish_s);
    }
    costs.push_back(path.cost);
    taken.push_back(path.losses);
    in_time += timely ? 1 : 0;
    in_budget += cheap ? 1 : 0;
    reached += timely && cheap ? 1 : 0;
    stopped += path.stopped_by_budget ? 1 : 0;
    summary.losses += weight * path.losses;
    summary.all_lost += weight * path.all_lost;
    summary.refusals += weight * path.refusals;
    summary.starting_s += weight * path.starting_s;
    summary.missing_s += weight * path.missing_s;
    summary.stock_out_s += weight * path.stock_out_s;
    summary.stopped_s += weight * path.stopped_s;
    summary.redone_s += weight * path.redone_s;
  }
  summary.finished = share_of(times.size(), paths.size());
  summary.in_time = share_of(in_time, paths.size());
  summary.in_budget = share_of(in_budget, paths.size());
  summary.reached = share_of(reached, paths.size());
  summary.stopped = share_of(stopped, paths.size());
  summary.time_s = spread_of(times);
  summary.cost = spread_of(costs);
  summary.taken = spread_of(taken);
  return summary;
}

bool is_settled(const Summary& summary, double share_error) {
  const auto precise = [](const Spread& spread) {
    return spread.error <= (spread.high - spread.low) / 10;
  };
  return precise(summary.time_s) && precise(summary.cost) && summary.reached.error <= share_error;
}

std::vector<PathOutcome> simulate(const Market& market, const JobModel& job,
                                  const Candidate& candidate, double horizon_s, std::uint64_t seed,
                                  std::uint64_t first, std::uint64_t count) {
  PathRunner runner(market, job, candidate, horizon_s);
  std::vector<PathOutcome> outcomes;
  outcomes.reserve(count);
  for (std::uint64_t path = first; path < first + count; ++path) {
    outcomes.push_back(runner.run(seed, path));
  }
  return outcomes;
}

}  // namespace mayfly::planner
