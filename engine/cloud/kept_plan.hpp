#pragma once

// The plan that a job was started from, in the planner's form; engine/run/plan_file.hpp describes
// its file. Any thread.

#include <functional>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "engine/config/config.hpp"
#include "planner/runs/kept_plan.hpp"

namespace mayfly::engine {

/// Reads the plan in a file. The errors of read_plan_file(), and kInvalidInput for another version.
[[nodiscard]] Result<planner::KeptPlan> read_kept_plan(const std::string& path);

/// The share of the next hour in which a server, or its replacement, works, by the lifetimes of the
/// plan that the job was started from; 1 for an offer that is not in it. Empty without a plan.
[[nodiscard]] std::function<double(const cloud_hooks::Offer& offer, Duration age)> planned_up_share(
    const std::string& run_dir);

/// A text with the job's checkpoint interval and its reason, if the plan chose it; otherwise empty.
[[nodiscard]] std::string planned_interval(const JobConfig& config);

}  // namespace mayfly::engine
