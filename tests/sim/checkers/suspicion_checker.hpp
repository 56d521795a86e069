#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// The reason why a living worker's process does nothing.
enum class Standstill {
  kStopped,  ///< by SIGSTOP; its sentinel is alive and reports that
  kStarved,  ///< it and its sentinel get no processor time; their machine answers
  kFrozen,   ///< the machine is suspended and does not answer
};

/// Checks that a member is evicted for silence only if it was silent, and not too early: a process
/// that only waits for a processor gets more time than a machine that does not answer.
class SuspicionChecker {
 public:
  /// `silence` and `starved`: the shortest times, in simulated time, after which the coordinator
  /// may evict a silent or a starved member. `is_sharp`: nothing else delays messages; otherwise
  /// this cannot be checked.
  SuspicionChecker(Violations& violations, Duration silence, Duration starved, bool is_sharp)
      : violations_(violations), silence_(silence), starved_(starved), is_sharp_(is_sharp) {}

  /// `deaf_since`: the instant since which the coordinator reads no messages; `now` if it reads
  /// them.
  void on_standstill(std::size_t worker, Standstill kind, Instant now, Instant until,
                     Instant deaf_since) {
    Still& still = still_[worker];
    // Otherwise the coordinator cannot know that the worker went on meanwhile.
    const bool is_new = now > still.until + kBeatMax && deaf_since > still.until;
    still.since = is_new ? now : still.since;
    // If the worker starves before its next heartbeat, the coordinator may still believe that it is
    // stopped: the sentinel's report of the stop may be the last message that it has received, also
    // because the worker's heartbeats arrive on another connection. Then the worker gets no more
    // time than a stopped process.
    const bool seems_stopped = still.stopped_until && now <= *still.stopped_until + kBeatMax;
    still.is_starved =
        kind == Standstill::kStarved && !seems_stopped && (is_new || still.is_starved);
    still.until = std::max(still.until, until);
    if (kind == Standstill::kStopped) {
      still.stopped_until = std::max(still.stopped_until.value_or(until), until);
    }
  }
  /// A living worker was evicted because it was silent. Before `listening_since` the coordinator
  /// read no messages; it may read those of that time only after the eviction.
  void on_believed(std::size_t worker, Instant now, Instant listening_since) {
    if (!is_sharp_) {
      return;
    }
    const std::string who = "worker " + std::to_string(worker) + " was evicted as silent";
    const auto place = still_.find(worker);
    const Instant woke = place == still_.end() ? Instant{} : place->second.until;
    if (now > std::max(woke, listening_since) + kWaking) {
      violations_.add(who + ", but was not");
      return;
    }
    if (place == still_.end()) {
      return;
    }
    const Still& still = place->second;
    violations_.expect(now - still.since >= (still.is_starved ? starved_ : silence_), [&] {
      return who + " after " + std::to_string(static_cast<long>(to_ms(now - still.since))) + " ms" +
             (still.is_starved ? ", although its machine answers" : "");
    });
  }

 private:
  static constexpr Duration kWaking = milliseconds(50);   // until its next message is received
  static constexpr Duration kBeatMax = milliseconds(23);  // between beats, by the slowest clock

  struct Still {
    Instant since;
    Instant until;
    bool is_starved = false;               // it is only starved
    std::optional<Instant> stopped_until;  // the end of the last stop
  };

  Violations& violations_;
  Duration silence_;
  Duration starved_;
  bool is_sharp_;
  std::map<std::size_t, Still> still_;
};

}  // namespace mayfly::sim
