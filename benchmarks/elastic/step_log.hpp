#pragma once

// The events that a benchmark of elasticity receives from its job: every committed step, with the
// time of its record and its duration.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "engine/launch/launch.hpp"

namespace mayfly::bench {

/// One committed step.
struct LoggedStep {
  std::uint64_t step = 0;
  std::uint64_t view = 0;
  std::uint32_t members = 0;
  std::uint64_t samples = 0;
  double ms = 0;       ///< since the previous commit, by the reporter's clock; 0 = unknown
  Instant heard;       ///< when the coordinator's process received its record
  std::string digest;  ///< empty for most steps
};

/// Milliseconds of an undisturbed step with so many members: the median over the steps that are
/// neither the first of their view nor the one after. 0 if there is none.
[[nodiscard]] double undisturbed_ms(const std::vector<LoggedStep>& steps, std::uint32_t members);

/// The same over the kNearest such steps that are nearest to this one, because the speed of a
/// machine with other users changes while a benchmark runs.
[[nodiscard]] double undisturbed_near_ms(const std::vector<LoggedStep>& steps,
                                         std::uint32_t members, std::uint64_t step);
inline constexpr std::size_t kNearest = 30;

/// How much slower undisturbed steps with so many members are than the undisturbed steps nearest to
/// them, as the value below which this fraction of them lies: the noise in the figures of single
/// events. 0 if there is none.
[[nodiscard]] double undisturbed_late_ms(const std::vector<LoggedStep>& steps,
                                         std::uint32_t members, double fraction);

/// The last step whose record was received before that moment, or nothing.
[[nodiscard]] std::optional<LoggedStep> last_before(const std::vector<LoggedStep>& steps,
                                                    Instant moment);

/// Collects the steps, and lines about events; prints nothing. Any thread.
class StepLog final : public engine::RunListener {
 public:
  void on_step(const engine::StepRecord& metric, std::uint64_t total_steps) override;
  void on_event(const std::string& line) override;
  void on_summary(const engine::Summary& summary) override;

  [[nodiscard]] std::vector<LoggedStep> steps() const;
  [[nodiscard]] std::uint64_t last_step() const;
  /// The lines of on_event that begin with `word`, each with its instant.
  [[nodiscard]] std::vector<std::pair<Instant, std::string>> lines(const std::string& word) const;

 private:
  mutable std::mutex mutex_;
  std::vector<LoggedStep> steps_;  // guarded by mutex_, like all members below
  std::vector<std::pair<Instant, std::string>> lines_;
};

}  // namespace mayfly::bench
