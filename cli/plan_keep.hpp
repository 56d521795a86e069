#pragma once

// The content of the file of a plan (engine/run/plan_file.hpp), which `mayfly plan --write` writes.
// Any thread.

#include <string>

#include "cli/arguments.hpp"
#include "cli/plan_report.hpp"
#include "cli/plan_source.hpp"
#include "engine/config/config.hpp"
#include "planner/runs/kept_plan.hpp"

namespace mayfly::cli {

/// The path of the plan of a job file: job.plan.json beside job.toml.
[[nodiscard]] std::string plan_beside(const std::string& job_file);

/// The chosen plan of a report, which needs one.
[[nodiscard]] planner::KeptPlan plan_to_keep(const ParsedArguments& arguments,
                                             const engine::JobConfig& config,
                                             const PlanSource& planned, const PlanReport& report);

/// The text of the plan's file.
[[nodiscard]] std::string text_of_plan(const planner::KeptPlan& plan);

}  // namespace mayfly::cli
