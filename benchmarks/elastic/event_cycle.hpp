#pragma once

// The cycle of every benchmark that causes events in a running job: wait until all workers train
// and nothing changes, choose a random moment, cause the event, wait for the outcome, restore the
// job.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "engine/launch/local_launcher.hpp"

namespace mayfly::bench {

/// The actions of a benchmark in the cycle; called on the launcher's thread.
struct EventCycleActions {
  /// Causes the event, at once.
  std::function<void(engine::LocalLauncher&)> strike;
  /// True once the outcome is known; `changes` are the changes of view that were completed since
  /// the event.
  std::function<bool(engine::LocalLauncher&, const std::vector<elastic::Recovery>& changes)>
      is_over;
  /// Begins to restore the number of workers.
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
