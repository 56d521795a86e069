#pragma once

// The JSON lines of metrics.jsonl and of the recoveries in events.jsonl; the field names are the
// members' names.

#include <string>

#include "engine/run/run_directory.hpp"

namespace mayfly::engine {

[[nodiscard]] std::string to_json(const StepMetric& metric);
[[nodiscard]] std::string to_json(const RecoveryRecord& record);

}  // namespace mayfly::engine
