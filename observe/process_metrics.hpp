#pragma once

// The metrics that dashboards for Prometheus expect from every process: processor time, memory and
// descriptors.

#include <vector>

#include "observe/core/metrics_text.hpp"

namespace mayfly::observe {

/// The metrics of this process that the system provides. Any thread.
[[nodiscard]] std::vector<ProcessMetric> process_metrics();

}  // namespace mayfly::observe
