#pragma once

// Carries out the faults of a plan (engine/faults/chaos_plan.hpp) on the workers of a local job.
// The thread of LocalLauncher::run().

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "engine/faults/chaos_plan.hpp"

namespace mayfly::engine {

class LocalLauncher;

class ChaosPlayer {
 public:
  /// `launcher` outlives it, and its job has begun before play() is called.
  ChaosPlayer(LocalLauncher& launcher, const std::vector<ChaosEvent>& plan);

  /// Carries out the events whose steps are committed.
  void play();
  /// Continues the stopped workers whose time has come.
  void wake_stopped_workers();
  /// Something is still to be carried out.
  [[nodiscard]] bool has_more() const { return !events_.empty() || !wakes_.empty(); }

 private:
  struct Wake {
    std::size_t worker;
    Instant at;
  };

  void play(const ChaosEvent& event);
  [[nodiscard]] std::optional<std::size_t> target_of(const ChaosEvent& event) const;

  LocalLauncher& launcher_;
  std::deque<ChaosEvent> events_;  // still to come
  std::vector<Wake> wakes_;        // stopped workers to be continued
};

}  // namespace mayfly::engine
