#pragma once

// A worker that other members could not exchange data with joins again when its links work. Until
// then it is a member that loads, for which no other waits: in a view with it all would stand
// still until it is evicted once more.

#include <functional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::engine {

class PeerReach {
 public:
  static constexpr Duration kFirstWait = seconds(30);
  static constexpr Duration kLongestWait = seconds(480);

  /// The worker was evicted from a view with members at `peers`, some of which perhaps cannot be
  /// reached; none if all of them could. Those with an address of the tcp transport are to answer
  /// before it is ready, or some time is to pass, as the job may not need them any more:
  /// kFirstWait, and twice as long each time in a row, up to kLongestWait.
  void evicted(const std::vector<std::string>& peers, Instant now);
  /// Until when it stays away, at the latest.
  [[nodiscard]] Instant until() const { return until_; }
  /// Connects to them until all have answered, it is time to try without that, or `pause`, which
  /// waits for so long or less, says that there is no need any more.
  void wait(const std::function<bool(Duration)>& pause);

 private:
  std::vector<collectives::TcpAddress> silent_;  // that have not answered
  Instant until_;
  int times_ = 0;  // in a row
};

}  // namespace mayfly::engine
