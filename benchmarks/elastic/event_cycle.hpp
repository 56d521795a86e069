#pragma once

// The rhythm of every benchmark that does something to a running job again and again: wait until
// the job is whole and quiet, aim at a random moment, strike, wait for the outcome, make the job
// whole again.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "engine/launch/local_launcher.hpp"

namespace mayfly::bench {

/// What a benchmark does at the turning points; called on the launcher's thread.
struct EventCycleActions {
  /// Does it, now.
  std::function<void(engine::LocalLauncher&)> strike;
  /// True once the outcome is known; `changes` are those of view that were completed since the
  /// strike.
  std::function<bool(engine::LocalLauncher&, const std::vector<elastic::Recovery>& changes)>
      is_over;
  /// Starts what brings the job back to its workers.
  std::function<void(engine::LocalLauncher&)> restore;
};

/// The first loss (or broken group), or the first change with that cause; nothing if there is none.
[[nodiscard]] std::optional<elastic::Recovery> first_loss(
    const std::vector<elastic::Recovery>& changes);
[[nodiscard]] std::optional<elastic::Recovery> first_with_cause(
    const std::vector<elastic::Recovery>& changes, elastic::ChangeCause cause);

class EventCycle {
 public:
  EventCycle(std::uint32_t workers, std::uint32_t events, std::uint64_t seed,
             EventCycleActions actions);

  /// The launcher's hook. Stops the job after the last event.
  void poll(engine::LocalLauncher& launcher);

 private:
  enum class Phase { kSettling, kAiming, kStruck };
  [[nodiscard]] bool is_whole(engine::LocalLauncher& launcher) const;

  std::uint32_t workers_;
  std::uint32_t events_;
  EventCycleActions actions_;
  RandomStream random_;
  Phase phase_ = Phase::kSettling;
  std::uint32_t done_ = 0;
  std::uint64_t quiet_since_step_ = 0;
  std::uint64_t view_ = 0;
  Instant strike_at_;
  std::size_t recoveries_before_ = 0;
};

}  // namespace mayfly::bench
