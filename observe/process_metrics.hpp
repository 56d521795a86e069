#pragma once

// What Prometheus' boards expect of every process: its processor time, memory and descriptors.

#include <vector>

#include "observe/core/metrics_text.hpp"

namespace mayfly::observe {

/// The metrics of this process that the system provides. Any thread.
[[nodiscard]] std::vector<ProcessMetric> process_metrics();

}  // namespace mayfly::observe
