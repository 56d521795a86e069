#pragma once

// Messages about a run for people: the listener that a terminal implements, and the sentences.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"
#include "engine/run/summary.hpp"

namespace mayfly::engine {

/// Receives messages about a run while it goes on. Called by several threads, one at a time.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// Called on the thread that starts the coordinator, before all other functions but on_event().
  /// The run directory exists, no worker is admitted yet, the settings are resolved, and the
  /// token's file exists. An error refuses the job.
  [[nodiscard]] virtual Result<void> on_begun(const JobConfig& /*config*/) { return {}; }
  virtual void on_step(const StepRecord& step, std::uint64_t total_steps) = 0;
  /// One readable line, for example "worker 2 lost after step 7: ...".
  virtual void on_event(const std::string& line) = 0;
  virtual void on_summary(const Summary& summary) = 0;
  /// Takes the place of everything else if a resumed job is complete already.
  virtual void on_nothing_left(const std::string& line) { on_event(line); }
};

[[nodiscard]] std::string sentence_of(const RecoveryRecord& record);
/// For a step that made no update because of its loss scale.
[[nodiscard]] std::string sentence_of_skip(const StepRecord& step);
[[nodiscard]] std::string sentence_of(const ProgramFailureRecord& record);
[[nodiscard]] std::string sentence_of(const FallBackRecord& record);
[[nodiscard]] std::string sentence_of(const ShardRecord& record);
/// The summary for the terminal, in several lines.
[[nodiscard]] std::string to_text(const Summary& summary);

}  // namespace mayfly::engine
