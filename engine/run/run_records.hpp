#pragma once

// What a step's record becomes in metrics.jsonl. The JSON of that, and of recoveries and images
// left out in events.jsonl and summary.json, whose field names are the members' names; what is said
// of a recovery while the job runs.

#include <string>

#include "engine/run/records.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::engine {

[[nodiscard]] std::string to_json(const StepMetric& metric);
[[nodiscard]] std::string to_json(const RecoveryRecord& record);
[[nodiscard]] std::string to_json(const datasets::LeftOut& left_out);
[[nodiscard]] std::string sentence_of(const RecoveryRecord& record);
/// `epoch`: passes completed after the step.
[[nodiscard]] StepMetric metric_of(const StepRecord& record, double epoch);
/// Of a step that made no update because of its loss scale.
[[nodiscard]] std::string sentence_of_skip(const StepMetric& metric);

}  // namespace mayfly::engine
