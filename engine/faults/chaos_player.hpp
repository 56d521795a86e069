#pragma once

// Carries out the faults of a plan (chaos_plan.hpp) that act on workers from outside: kills, stops
// and starts them. One thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/faults/chaos_plan.hpp"

namespace mayfly::engine {

/// The processes that faults hit, by their numbers: the order of starting, from 0. Called on the
/// player's thread.
class ChaosTargets {
 public:
  virtual ~ChaosTargets() = default;
  /// Starts one more worker and returns its number. An error with the reason if that is impossible.
  virtual Result<std::size_t> start_worker() = 0;
  /// Whether there is such a process, and it runs.
  [[nodiscard]] virtual bool is_running(std::size_t number) const = 0;
  /// The numbers of the processes that are workers and run, in ascending order.
  [[nodiscard]] virtual std::vector<std::size_t> running_workers() const = 0;
  /// Sends a signal; an error if the process has ended.
  virtual Result<void> signal_worker(std::size_t number, int signal) = 0;
  /// Sends SIGKILL, and no other worker is started in its place.
  virtual Result<void> kill_for_good(std::size_t number) = 0;
  /// Passes on a sentence for the user about a fault that was carried out.
  virtual void note_chaos(const std::string& text) = 0;
};

class ChaosPlayer {
 public:
  /// `targets` outlives it.
  ChaosPlayer(ChaosTargets& targets, const std::vector<ChaosEvent>& plan)
      : targets_(targets), events_(plan.begin(), plan.end()) {}

  /// Carries out the events whose steps are committed, and continues stopped workers whose time is
  /// over.
  void play(std::uint64_t committed, Instant now);
  /// Whether events remain, or stopped workers must be continued.
  [[nodiscard]] bool has_more() const { return !events_.empty() || !stopped_.empty(); }

 private:
  struct Stopped {
    std::size_t worker;
    Instant until;
  };

  void play(const ChaosEvent& event, Instant now);
  void start_worker();
  void strike(std::size_t worker, const ChaosEvent& event, Instant now);
  [[nodiscard]] std::optional<std::size_t> target_of(const ChaosEvent& event) const;

  ChaosTargets& targets_;
  std::deque<ChaosEvent> events_;  // not carried out yet
  std::vector<Stopped> stopped_;   // workers to be continued
};

}  // namespace mayfly::engine
