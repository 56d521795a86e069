#pragma once

// The plan that a job was started from, as the planner knows it; engine/run/plan_file.hpp knows its
// file. Any thread.

#include <functional>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "engine/config/config.hpp"
#include "planner/runs/kept_plan.hpp"

namespace mayfly::engine {

/// The plan in a file; the errors of read_plan_file(), and kInvalidInput if it is of another
/// version.
[[nodiscard]] Result<planner::KeptPlan> read_kept_plan(const std::string& path);

/// The share of the next hour in which a server, or its replacement, works, by the lifetimes of the
/// plan that the job was started from; 1 for an offer that is not in it. Empty without a plan.
[[nodiscard]] std::function<double(const cloud_hooks::Offer& offer, Duration age)> planned_up_share(
    const std::string& run_dir);

/// How often the job writes checkpoints, and why, if its plan has chosen that; otherwise empty.
[[nodiscard]] std::string planned_interval(const JobConfig& config);

}  // namespace mayfly::engine
