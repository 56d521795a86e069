#pragma once

// A worker that was evicted because it could not exchange data with other members must not enter a
// view before its links work: all members of that view would wait until it is evicted once more.
// Until then it does not report that it is ready, so no member waits for it. PeerReach remembers,
// for longer than a membership, which addresses have to answer, and how long the worker waits for
// their answers. Trainer thread.

#include <functional>
#include <string>
#include <vector>

#include "base/net/wake_up.hpp"
#include "base/time.hpp"
#include "collectives/tcp/tcp_address.hpp"

namespace mayfly::engine {

/// Which answers end the wait, and how long it may last.
struct ReachRule {
  /// Whether a host that refuses the connection counts as an answer: the link to it works, but the
  /// process that listened there has ended.
  bool takes_refusals = false;
  /// The longest wait after the first eviction. It doubles with each further one in a row, four
  /// times at most.
  Duration first_wait = seconds(30);
};

class PeerReach {
 public:
  explicit PeerReach(ReachRule rule) : rule_(rule) {}

  /// To be called when data could not be exchanged with some or all of the peers at `addresses`.
  /// Those that are addresses of the tcp transport have to answer, or some time has to pass, as the
  /// job may not need these peers any more. Without any such address it is the same as
  /// reached_all().
  void cut_off(const std::vector<std::string>& addresses, Instant now);
  /// To be called when data was exchanged with all peers: the next wait is as short as the first.
  void reached_all();

  /// Whether peers have not answered yet, and it is too early to join without their answer.
  [[nodiscard]] bool is_away(Instant now) const { return !silent_.empty() && now < until_; }
  /// When is_away() is over, if no peer answers.
  [[nodiscard]] Instant until() const { return until_; }
  /// Connects to the silent peers until is_away() is over or `is_over` is true, which is asked
  /// whenever `wake` is notified. Clears `wake`.
  void wait(const WakeUp& wake, const std::function<bool()>& is_over);

 private:
  void probe(const WakeUp& wake);

  ReachRule rule_;
  std::vector<collectives::TcpAddress> silent_;  // peers that have not answered
  Instant until_;
  int times_ = 0;  // calls of cut_off() since the last reached_all()
};

}  // namespace mayfly::engine
