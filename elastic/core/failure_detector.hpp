#pragma once

// Suspects members that have not been heard from for too long. It can be wrong: a member that is
// merely slow, or whose messages are delayed, looks like a dead one, and no rule can tell them
// apart. Being wrong costs an eviction, never correctness, because an evicted member is fenced by
// its view.
//
// How long is too long depends on what else is known. A member whose machine acknowledges what is
// sent to it, and whose process was not seen to be stopped, only waits for a processor:
// `starved_max`. One that is stopped: `silence_max`. One whose machine does not answer either:
// `silence_max`, adapted to its irregular heartbeats (mean interval plus several deviations, at
// most ten times silence_max). A pause of the observer itself excuses everybody. Pure: one thread,
// no clock of its own.

#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/member_map.hpp"

namespace mayfly::elastic {

class FailureDetector {
 public:
  /// `silence_max` > 0: the shortest silence that can make a member suspect. `starved_max` below it
  /// counts as equal to it.
  FailureDetector(Duration silence_max, Duration starved_max);

  /// The member was heard from; the first time starts watching it. Instants never go back.
  void heard(MemberId member, Instant now);
  /// Its process is stopped; until it is heard from again.
  void stopped(MemberId member);
  /// Its machine acknowledged something that was sent after the member had fallen silent.
  void host_answers(MemberId member, Instant now);
  /// Stops watching; unknown members are ignored.
  void forget(MemberId member);
  /// Time passes; to be called much more often than silence_max. Returns the suspects in the order
  /// of their ids. If the last call was long ago, nobody is suspect, now and for a third of
  /// silence_max: we were not listening, and what waits to be read may be both that somebody was
  /// stopped and that it goes on.
  [[nodiscard]] std::vector<MemberId> suspects(Instant now);
  /// How long the pause of our own was that the last call of suspects() ended; zero if none did.
  [[nodiscard]] Duration own_pause() const { return own_pause_; }
  /// Members that have been silent for a while, each again every third of silence_max: an adapter
  /// that asks their machines tells host_answers().
  [[nodiscard]] std::vector<MemberId> to_probe(Instant now);
  /// For how long nothing has been heard of the member; zero if it is not watched.
  [[nodiscard]] Duration silence(MemberId member, Instant now) const;
  /// The silence that would make this member suspect now; silence_max if it is not watched.
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
    bool answered = false;  // its machine, since it was last heard from
    Instant answered_at{};
    Instant probed{};
  };
  [[nodiscard]] Duration patience_with(const Watched& watched, Instant now) const;
  [[nodiscard]] bool is_starved(const Watched& watched, Instant now) const;

  Duration silence_max_;
  Duration starved_max_;
  Instant last_look_;
  bool has_looked_ = false;
  Duration own_pause_{};
  std::optional<Instant> listening_since_;  // after the last pause of our own
  MemberMap<Watched> watched_;
};

}  // namespace mayfly::elastic
