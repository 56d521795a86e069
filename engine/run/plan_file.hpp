#pragma once

// The file of the plan that a job was started from (docs/planner.md): `mayfly plan --write` makes
// it, the job's run directory keeps it. Only the planner interprets the plan. These functions know
// the file's frame: one JSON object with a format and a hash of itself. Any thread.

#include <string>

#include "base/result.hpp"

namespace mayfly::engine {

/// The name of the file in a run directory, and its path there.
inline constexpr const char* kPlanName = "plan.json";
[[nodiscard]] std::string plan_path(const std::string& run_dir);

/// The file's text for a plan, which is the text of a JSON object.
[[nodiscard]] std::string plan_file_text(const std::string& plan);

/// The text of such a file. kInvalidInput with one line that names it if it is missing, damaged, or
/// no plan of this version.
[[nodiscard]] Result<std::string> read_plan_file(const std::string& path);

}  // namespace mayfly::engine
