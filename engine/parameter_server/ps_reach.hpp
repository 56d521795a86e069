#pragma once

// A worker that was cut off from a server comes back when its link works again. Until then it is a
// member that loads, for which nobody waits. Remembers over memberships what could not be reached;
// probes it, or tries the whole job again after a while, as the job may not need that server any
// more. Trainer thread.

#include <cstdint>
#include <optional>
#include <string>

#include "base/net/wake_up.hpp"
#include "base/time.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::engine {

class PsReach {
 public:
  static constexpr Duration kFirstWait = seconds(10);
  static constexpr Duration kLongestWait = seconds(160);

  /// This address of a shard could not be reached. Each time in a row the worker stays away for
  /// twice as long, if nobody answers there: kFirstWait to kLongestWait.
  void cut_off(const std::string& address, Instant now);
  /// We were let in everywhere: the next time is a first one.
  void reached_all() { times_ = 0; }

  /// There is something to probe, and it is too early to try without an answer.
  [[nodiscard]] bool is_away(Instant now) const { return to_ && now < until_; }
  /// Until when, at the latest.
  [[nodiscard]] Instant until() const { return until_; }
  /// Tries to connect once, for at most about a second; less if `wake` ends it. True if somebody
  /// listens there, and then is_away() is over.
  bool probe_once(const WakeUp& wake);

 private:
  std::optional<collectives::TcpAddress> to_;
  Instant until_;
  std::uint32_t times_ = 0;  // in a row
};

}  // namespace mayfly::engine
