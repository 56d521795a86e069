#pragma once

// The state of a run as metrics for Prometheus: text format 0.0.4, or OpenMetrics 1.0. The number
// of series is bounded: no step, member, server or message is a label, so that it does not grow
// with the events of a job. Counters are computed from the records, so they continue after a
// restart of the coordinator. Pure.

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mayfly::observe {

class RunFold;

/// Counts of durations up to each bound, in seconds.
template <std::size_t kBounds>
struct Histogram {
  std::array<std::uint64_t, kBounds + 1> counts{};  ///< of each interval; the last has no bound
  double sum = 0;

  void add(const std::array<double, kBounds>& bounds, double seconds) {
    std::size_t at = 0;
    while (at < kBounds && seconds > bounds[at]) {
      ++at;
    }
    ++counts[at];
    sum += seconds;
  }
};

inline constexpr std::array<double, 10> kDurationBounds = {0.001, 0.003, 0.01, 0.03, 0.1,
                                                           0.3,   1,     3,    10,   30};
using Durations = Histogram<kDurationBounds.size()>;

enum class MetricsFormat { kPrometheus, kOpenMetrics };
/// The value of Content-Type for this format.
[[nodiscard]] const char* content_type_of(MetricsFormat format);
/// The format that a client requests by its header Accept.
[[nodiscard]] MetricsFormat metrics_format_for(const std::string& accept);

/// One metric of a process, not of a run: name, help text, type and value.
struct ProcessMetric {
  const char* name;
  const char* help;
  bool is_counter;
  double value;
};

/// The metrics of all runs with their names, and those of the process.
[[nodiscard]] std::string metrics_text(
    const std::vector<std::pair<std::string, const RunFold*>>& runs,
    const std::vector<ProcessMetric>& process, MetricsFormat format);

}  // namespace mayfly::observe
