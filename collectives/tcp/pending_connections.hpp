#pragma once

// Connections to a member that nobody has answered yet: of members that are ahead of it, of former
// views, and of anybody else who can reach its sockets. Bounded in number and in time, whoever they
// are. While the member forms a group the forming thread has the room for itself (see enter());
// otherwise a thread of the room's own accepts, reads and throws out, so that nobody can fill the
// system's queues between two views.

#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/accept.hpp"
#include "base/net/wake_up.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "collectives/tcp/tcp_handshake.hpp"

namespace mayfly::collectives {

/// One connection in the room.
struct PendingConnection {
  Incoming incoming;
  std::string who;  ///< for people
  Instant since{};
};

class PendingConnections {
 public:
  /// Each other member says at most one hello per view; more than these are not authenticated or
  /// left over.
  static constexpr std::size_t kPendingMax = 128;
  /// Whoever connects says hello at once.
  static constexpr Duration kHelloTimeout = seconds(5);
  /// Whether a hello for a view to come is a member's, nobody knows yet; a member that is thrown
  /// out connects again.
  static constexpr Duration kAnswerTimeout = seconds(10);

  /// Takes over listening sockets; `unix_domain` may be invalid.
  PendingConnections(UniqueFd tcp, UniqueFd unix_domain);
  ~PendingConnections();
  PendingConnections(const PendingConnections&) = delete;
  PendingConnections& operator=(const PendingConnections&) = delete;

  /// While this lives the room belongs to the calling thread, and the functions below may be
  /// called. Any thread may enter; waits a moment if another is inside.
  [[nodiscard]] std::unique_lock<std::mutex> enter() { return std::unique_lock(mutex_); }

  [[nodiscard]] int tcp_fd() const { return tcp_.get(); }
  [[nodiscard]] int unix_fd() const { return unix_domain_.get(); }
  /// What to poll the two for: nothing while there is no descriptor for anybody.
  [[nodiscard]] short events() const;
  /// Accepts connections, reads what they say, and closes those of no member and those that are
  /// late.
  void receive(Instant now);
  /// In the order in which they came. The owner of the room answers them and takes them out.
  [[nodiscard]] std::vector<PendingConnection>& waiting() { return waiting_; }
  /// Logs that its owner has closed a pending connection.
  void note_refusal(const PendingConnection& pending, const char* why) {
    log_.turned_away(pending.who, why);
  }

 private:
  void accept_all(int listener, Instant now);
  void make_place();
  [[nodiscard]] bool must_close(PendingConnection& pending, Instant now);
  void keep();

  const UniqueFd tcp_;
  const UniqueFd unix_domain_;
  const WakeUp wake_;  // the room is closing
  std::mutex mutex_;
  std::vector<PendingConnection> waiting_;  // guarded by mutex_, as all below
  RejectionLog log_{"gradient port"};
  bool has_no_descriptors_ = false;
  std::thread keeper_;  // the last member: it uses the others
};

}  // namespace mayfly::collectives
