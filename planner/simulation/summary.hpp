#pragma once

// Many paths of one candidate in a few numbers, each with its Monte Carlo standard error. Pure; any
// thread.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

/// A share of the paths, and its standard error (Agresti and Coull, American Statistician 52
/// (1998), page 122: not 0 where all paths agree).
struct Share {
  double value = 0;
  double error = 0;
};

/// The mean over the paths that finish, with its standard error, and the quantiles that bound the
/// central 90 %.
struct Spread {
  double mean = 0;
  double error = 0;
  double low = 0;
  double median = 0;
  double high = 0;
};

/// All 0 without values.
[[nodiscard]] Spread spread_of(const std::vector<double>& values);

struct Summary {
  std::size_t paths = 0;
  Share finished;  ///< before the horizon
  Spread time_s;
  Spread cost;        ///< of all paths
  Share in_time;      ///< finished by the deadline; 1 without one
  Share in_budget;    ///< finished, at a cost within the budget; 1 without one
  Share reached;      ///< both
  Share stopped;      ///< by the policy, because the budget was used up
  Spread taken;       ///< servers taken while they worked, of all paths
  double losses = 0;  ///< means over all paths, as in PathOutcome
  double all_lost = 0;
  double refusals = 0;
  double starting_s = 0;
  double missing_s = 0;
  double stock_out_s = 0;
  double stopped_s = 0;
  double redone_s = 0;
};

/// At least one path.
[[nodiscard]] Summary summarise(std::span<const PathOutcome> paths,
                                std::optional<double> deadline_s = std::nullopt,
                                std::optional<double> budget = std::nullopt);

/// Whether further paths would change little: the errors of the means are below a tenth of their
/// intervals, and that of the reached share is below `share_error`.
[[nodiscard]] bool is_settled(const Summary& summary, double share_error);

/// The paths `first` to `first + count - 1` of a candidate, by the fast simulation.
[[nodiscard]] std::vector<PathOutcome> simulate(const Market& market, const JobModel& job,
                                                const Candidate& candidate, double horizon_s,
                                                std::uint64_t seed, std::uint64_t first,
                                                std::uint64_t count);

}  // namespace mayfly::planner
