#pragma once

#include <cstdint>
#include <string>

#include "engine/run/run_directory.hpp"

namespace mayfly::engine {

/// Told about the run while it goes on, for the terminal. Called on the coordinator's thread.
class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void on_step(const StepMetric& metric, std::uint64_t total_steps) = 0;
  /// One readable line about membership, for example "worker 2 lost (killed), 3 go on, 41 ms".
  virtual void on_event(const std::string& line) = 0;
  virtual void on_summary(const Summary& summary) = 0;
};

}  // namespace mayfly::engine
