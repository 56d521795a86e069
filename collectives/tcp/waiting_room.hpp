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

#include "base/stranger_log.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "collectives/tcp/tcp_handshake.hpp"

namespace mayfly::collectives {

/// One connection in the room.
struct Visitor {
  Incoming incoming;
  std::string who;  ///< for people
  Instant since{};
};

class WaitingRoom {
 public:
  /// Each other member says at most one hello per view; more than these are strangers or leftovers.
  static constexpr std::size_t kVisitorsMax = 128;
  /// Whoever connects says hello at once.
  static constexpr Duration kHelloTimeout = seconds(5);
  /// Whether a hello for a view to come is a member's, nobody knows yet; a member that is thrown
  /// out connects again.
  static constexpr Duration kAnswerTimeout = seconds(10);

  /// Takes over listening sockets; `unix_domain` may be invalid.
  WaitingRoom(UniqueFd tcp, UniqueFd unix_domain);
  ~WaitingRoom();
  WaitingRoom(const WaitingRoom&) = delete;
  WaitingRoom& operator=(const WaitingRoom&) = delete;

  /// While this lives the room belongs to the calling thread, and the functions below may be
  /// called. Any thread may enter; waits a moment if another is inside.
  [[nodiscard]] std::unique_lock<std::mutex> enter() { return std::unique_lock(mutex_); }

  [[nodiscard]] int tcp_fd() const { return tcp_.get(); }
  [[nodiscard]] int unix_fd() const { return unix_domain_.get(); }
  /// What to poll the two for: nothing while there is no descriptor for anybody.
  [[nodiscard]] short events() const;
  /// Lets in who has connected, reads what they say, and throws out who is no member or late.
  void receive(Instant now);
  /// In the order in which they came. The owner of the room answers them and takes them out.
  [[nodiscard]] std::vector<Visitor>& visitors() { return visitors_; }
  /// Tells people of a visitor that its owner sends away.
  void note_refusal(const Visitor& visitor, const char* why) { log_.turned_away(visitor.who, why); }

 private:
  void accept_all(int listener, Instant now);
  void make_place();
  [[nodiscard]] bool throws_out(Visitor& visitor, Instant now);
  void keep();

  const UniqueFd tcp_;
  const UniqueFd unix_domain_;
  const UniqueFd wake_;  // an eventfd: the room is closing
  std::mutex mutex_;
  std::vector<Visitor> visitors_;  // guarded by mutex_, as all below
  StrangerLog log_{"gradient port"};
  bool has_no_descriptors_ = false;
  std::thread keeper_;
};

}  // namespace mayfly::collectives
