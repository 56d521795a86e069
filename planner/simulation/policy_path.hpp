#pragma once

// One path of a job as the product would run it: cloud_hooks/core/ReplacementPolicy decides, with
// its OfferCatalog and its Bill, and a simulated provider answers from the same draws as
// simulation/path. Slower than simulation/path, and without its fall-back to on-demand servers.
// Pure; any thread.

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

/// The path of that number.
[[nodiscard]] PathOutcome run_policy_path(const Market& market, const JobModel& job,
                                          const Candidate& candidate, double horizon_s,
                                          std::uint64_t seed, std::uint64_t path);

}  // namespace mayfly::planner
