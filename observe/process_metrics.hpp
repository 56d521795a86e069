#pragma once

// What Prometheus' boards expect of every process: its processor time, memory and descriptors.

#include <vector>

#include "observe/core/metrics_text.hpp"

namespace mayfly::observe {

/// Of this process, as far as the system tells. Any thread.
[[nodiscard]] std::vector<ProcessMetric> process_metrics();

}  // namespace mayfly::observe
