#pragma once

// Records of runs for the tests of the dashboard.

#include <string>
#include <vector>

#include "observe/core/run_fold.hpp"

namespace mayfly::observe {

inline std::string event_line(double t, const std::string& kind, const std::string& more = "") {
  return "{\"time\": " + std::to_string(1'700'000'000 + t) + ", \"t\": " + std::to_string(t) +
         ", \"kind\": \"" + kind + "\"" + (more.empty() ? "" : ", " + more) + "}";
}

/// A step of one second, committed at `t`.
inline std::string step_line(int step, double t, const std::string& more = "") {
  return "{\"step\": " + std::to_string(step) + ", \"t\": " + std::to_string(t) +
         ", \"samples\": 100, \"epoch\": " + std::to_string(0.1 * step) +
         ", \"loss\": " + std::to_string(10.0 / step) +
         ", \"accuracy\": 0.5, \"learning_rate\": 0.1, \"images_per_second\": 100, "
         "\"data_wait_ms\": 100, \"members\": 2, \"view\": 1" +
         (more.empty() ? "" : ", " + more) + "}";
}

/// Passes lines to a RunFold as they are in the two files.
struct Feed {
  RunFold fold;
  std::uint64_t event_bytes = 0;
  std::uint64_t metric_bytes = 0;

  void event(const std::string& line) {
    fold.event(line, event_bytes);
    event_bytes += line.size() + 1;
  }
  void step(const std::string& line) {
    fold.metric(line, metric_bytes);
    metric_bytes += line.size() + 1;
  }
  /// Step 1 would begin at `from`.
  void steps(int first, int last, const std::string& more = "", double from = 1) {
    for (int i = first; i <= last; ++i) {
      step(step_line(i, from + i, more));
    }
  }
};

inline void begin(Feed& feed, double t = 0) {
  feed.event(event_line(t, "started", "\"metrics_bytes\": " + std::to_string(feed.metric_bytes)));
}

inline std::string view_more(int committed, const std::string& members,
                             const std::string& hosts = "[\"a\", \"b\"]") {
  return "\"view\": 1, \"committed\": " + std::to_string(committed) + ", \"members\": " + members +
         ", \"hosts\": " + hosts;
}

inline std::string recovery_more(int step, const std::string& member, double detected, double ms) {
  return "\"recovery\": {\"cause\": \"lost\", \"members\": [" + member +
         "], \"step\": " + std::to_string(step) + ", \"detected\": " + std::to_string(detected) +
         ", \"view\": 2, \"redone_microbatches\": 2, \"detail\": \"it died\", \"told_ms\": 0, "
         "\"stopped_ms\": 10, \"formed_ms\": 20, \"synced_ms\": 30, \"step_ms\": " +
         std::to_string(ms) + "}";
}

}  // namespace mayfly::observe
