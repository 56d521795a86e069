#pragma once

// Suspects members that have been silent for too long. It can be wrong: a member that is merely
// slow, or whose messages are delayed, looks like a dead one, and no rule can distinguish them. A
// wrong suspicion costs an eviction, never correctness, because an evicted member is fenced by its
// view.
//
// The limit depends on what else is known about the member:
// - Its machine acknowledges data, and its process is not known to be stopped: it only lacks
//   processor time. The limit is `starved_max`.
// - Its process is stopped: `silence_max`.
// - Its machine does not answer either: `silence_max`, adapted to irregular heartbeats (mean
//   interval plus several deviations, at most ten times silence_max).
// If the calling process was itself suspended, no member is suspected for a while. Pure: one
// thread, no clock of its own.

#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/member_map.hpp"

namespace mayfly::elastic {

class FailureDetector {
 public:
  /// `silence_max` > 0: the shortest silence that can make a member a suspect. A smaller
  /// `starved_max` counts as equal to it.
  FailureDetector(Duration silence_max, Duration starved_max);

  /// A message or heartbeat of the member arrived; the first one starts watching it. Instants never
  /// go back.
  void on_message(MemberId member, Instant now);
  /// The member's process is stopped, until on_message() is called again.
  void stopped(MemberId member);
  /// Its machine acknowledged something that was sent after the member had fallen silent.
  void host_answers(MemberId member, Instant now);
  /// Stops watching; unknown members are ignored.
  void forget(MemberId member);
  /// To be called much more often than every silence_max. Returns the suspects in the order of
  /// their ids. If the last call was long ago, this process was itself suspended: then no member is
  /// a suspect, now and for a third of silence_max, because unread messages may say that a member
  /// was stopped as well as that it continues.
  [[nodiscard]] std::vector<MemberId> suspects(Instant now);
  /// How long this process was suspended before the last call of suspects(); zero if it was not.
  [[nodiscard]] Duration own_pause() const { return own_pause_; }
  /// Members that have been silent for a while, each again after a third of silence_max. The
  /// adapter sends bytes to their machines, and calls host_answers() when they are acknowledged.
  [[nodiscard]] std::vector<MemberId> to_probe(Instant now);
  /// The time since the member was last heard; zero if it is not watched.
  [[nodiscard]] Duration silence(MemberId member, Instant now) const;
  /// The silence that would make this member a suspect now; silence_max if it is not watched.
  [[nodiscard]] Duration patience(MemberId member, Instant now) const;
  /// A readable reason why it is a suspect.
  [[nodiscard]] std::string reason(MemberId member, Instant now) const;

 private:
  struct Watched {
    Instant last;
    double mean_ns = 0;  // exponentially weighted, of the intervals
    double variance_ns2 = 0;
    bool has_interval = false;
    bool stopped = false;
    bool answered = false;  // its machine has acknowledged data since the member's last message
    Instant answered_at{};
    Instant probed{};
  };
  [[nodiscard]] Duration patience_with(const Watched& watched, Instant now) const;
  [[nodiscard]] bool is_starved(const Watched& watched, Instant now) const;

  Duration silence_max_;
  Duration starved_max_;
  Instant last_check_;
  bool has_checked_ = false;
  Duration own_pause_{};
  std::optional<Instant> listening_since_;  // since the end of this process's last pause
  MemberMap<Watched> watched_;
};

}  // namespace mayfly::elastic
