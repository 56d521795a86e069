#pragma once

// A worker that could not exchange data with others joins again when its links work. Until then it
// stays away: it is a member that loads, for which no other waits; in a view with it all would
// stand still until it is evicted once more. PeerReach lives longer than a membership and remembers
// which addresses have to answer, and until when the worker waits for that. Trainer thread.

#include <functional>
#include <string>
#include <vector>

#include "base/net/wake_up.hpp"
#include "base/time.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::engine {

/// The rule by which the worker waits.
struct ReachRule {
  /// Whether a host that refuses the connection counts as an answer: the link to it works, but the
  /// process that listened there has ended.
  bool takes_refusals = false;
  /// The longest wait of the first time. It doubles with each time in a row, four times at most.
  Duration first_wait = seconds(30);
};

class PeerReach {
 public:
  explicit PeerReach(ReachRule rule) : rule_(rule) {}

  /// Data could not be exchanged with peers, perhaps not with any of those at `addresses`. Those
  /// that are addresses of the tcp transport have to answer, or some time has to pass, as the job
  /// may not need these peers any more. Without any such address it is the same as reached_all().
  void cut_off(const std::vector<std::string>& addresses, Instant now);
  /// Data was exchanged with all peers: the next time that the worker is cut off is a first one.
  void reached_all();

  /// Peers have not answered yet, and it is too early to join without their answer.
  [[nodiscard]] bool is_away(Instant now) const { return !silent_.empty() && now < until_; }
  /// When is_away() is over, if no peer answers.
  [[nodiscard]] Instant until() const { return until_; }
  /// Connects to the silent peers until is_away() is over or `is_over` is true, which is asked
  /// whenever `wake` is notified. Clears `wake`.
  void wait(const WakeUp& wake, const std::function<bool()>& is_over);

 private:
  void probe(const WakeUp& wake);

  ReachRule rule_;
  std::vector<collectives::TcpAddress> silent_;  // that have not answered
  Instant until_;
  int times_ = 0;  // in a row
};

}  // namespace mayfly::engine
