#pragma once

// One path of a job as the product would run it: cloud_hooks/core/ReplacementPolicy decides, with
// its OfferCatalog and its Bill, and a simulated provider answers from the same draws as
// simulation/path. Slower than that, and without falling back; it also knows budgets. Pure; any
// thread.

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

/// The path of that number. With a budget the policy stops the job in time, and the path is not
/// finished then.
[[nodiscard]] PathOutcome run_policy_path(const Market& market, const JobModel& job,
                                          const Candidate& candidate, double horizon_s,
                                          std::uint64_t seed, std::uint64_t path,
                                          std::optional<double> budget = std::nullopt);

}  // namespace mayfly::planner
