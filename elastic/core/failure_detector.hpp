#pragma once

// Suspects members that have not been heard from for too long. It can be wrong: a member that is
// merely slow, or whose messages are delayed, looks like a dead one, and no rule can tell them
// apart. Being wrong costs an eviction, never correctness, because an evicted member is fenced by
// its view. How long is too long adapts to each member: its mean interval plus several deviations,
// never less than `silence_max` and never more than ten times that. A pause of the observer itself
// excuses everybody. Pure: one thread, no clock of its own.

#include <map>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"

namespace mayfly::elastic {

class FailureDetector {
 public:
  /// `silence_max` > 0: the shortest silence that can make a member suspect.
  explicit FailureDetector(Duration silence_max);

  /// The member was heard from; the first time starts watching it. Instants never go back.
  void heard(MemberId member, Instant now);
  /// Stops watching; unknown members are ignored.
  void forget(MemberId member);
  /// Time passes; to be called much more often than silence_max. Returns the suspects in the order
  /// of their ids. If the last call was long ago, nobody is suspect: we were not listening.
  [[nodiscard]] std::vector<MemberId> suspects(Instant now);
  /// For how long nothing has been heard of the member; zero if it is not watched.
  [[nodiscard]] Duration silence(MemberId member, Instant now) const;
  /// The silence that would make this member suspect now; silence_max if it is not watched.
  [[nodiscard]] Duration patience(MemberId member) const;

 private:
  struct Watched {
    Instant last;
    double mean_ns = 0;  // exponentially weighted, of the intervals
    double variance_ns2 = 0;
    bool has_interval = false;
  };
  [[nodiscard]] Duration patience_with(const Watched& watched) const;

  Duration silence_max_;
  Instant last_look_;
  bool has_looked_ = false;
  std::map<MemberId, Watched> watched_;
};

}  // namespace mayfly::elastic
