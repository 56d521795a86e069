#pragma once

// How two members agree that a connection belongs to the group of one view. The connecting side
// sends a hello and, to a member of the same host, shared memory; the accepting side answers with a
// verdict when it forms the same view itself, however late that is. After a welcome the connection
// is a channel. One thread at a time, except for PendingConnections::lock().

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/net/accept.hpp"
#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "collectives/tcp/channel.hpp"

namespace mayfly::collectives {

struct Hello {
  std::uint64_t magic = 0;
  std::uint64_t view = 0;
  std::uint64_t key = 0;
  std::uint32_t from = 0;  ///< rank of the connecting side
  std::uint32_t to = 0;    ///< rank of the accepting side
};
static_assert(sizeof(Hello) == 32);

inline constexpr std::uint64_t kHelloMagic = 0x3130'6873'656d'796dULL;  // "mymesh01"

enum class Verdict : std::uint32_t {
  kWelcome = 0x6d79'0001,
  kWelcomeShared = 0x6d79'0005,  ///< welcome; bytes are exchanged through the shared memory
  kStaleView = 0x6d79'0002,      ///< the accepting side forms a newer view already
  kWrongKey = 0x6d79'0003,
  kWrongRank = 0x6d79'0004,  ///< the two disagree about the order of members
};

/// The verdict of the accepting member about `hello`, given the hello that it expects from that
/// rank in the view that it forms. Nothing: the hello is of a newer view, and is answered when that
/// forms.
[[nodiscard]] std::optional<Verdict> judge(const Hello& hello, const Hello& expected);

/// A connection from which the hello has not been read, or not been answered.
class Incoming {
 public:
  explicit Incoming(UniqueFd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Reads the bytes that have arrived. False: the connection is over or not one of a member.
  [[nodiscard]] bool receive();
  /// The hello, once it is complete.
  [[nodiscard]] std::optional<Hello> hello() const;
  /// Refuses or welcomes; false if the other side has ended.
  [[nodiscard]] bool answer(Verdict verdict);
  /// After a welcome.
  [[nodiscard]] std::unique_ptr<Channel> take_channel();

 private:
  UniqueFd fd_;
  UniqueFd handed_over_;  // shared memory
  SealedMemory memory_;
  std::array<std::byte, sizeof(Hello)> raw_{};
  std::size_t received_ = 0;
};

/// The connecting side, from connect() to the verdict.
class Outgoing {
 public:
  /// `share_memory`: offers shared memory (Unix-domain sockets only); if the system provides none,
  /// bytes go through the socket.
  Outgoing(UniqueFd fd, const Hello& hello, bool share_memory);

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Whether the connection is established; false while the other host has not answered.
  [[nodiscard]] bool is_connected() const { return hello_sent_; }
  /// The events to poll for next.
  [[nodiscard]] short events() const;
  /// Continues after poll() has reported an event. True: welcome. Fails with kPeerLost without
  /// culprit if the connection breaks, kAborted if the view is stale, kRefused if key or rank are
  /// wrong.
  [[nodiscard]] Result<bool> advance();
  /// After advance() has failed: the other side took the connection and closed it without an
  /// answer.
  [[nodiscard]] bool was_left_unanswered() const { return unanswered_; }
  /// After the welcome.
  [[nodiscard]] std::unique_ptr<Channel> take_channel();

 private:
  [[nodiscard]] Result<bool> judged(Verdict verdict);

  UniqueFd fd_;
  Hello hello_;
  SealedMemory memory_;
  UniqueFd to_hand_over_;
  bool hello_sent_ = false;
  bool unanswered_ = false;
  std::array<std::byte, sizeof(Verdict)> raw_{};
  std::size_t received_ = 0;
};

/// A connection that no member has answered yet.
struct PendingConnection {
  Incoming incoming;
  std::string who;  ///< human-readable
  Instant since{};
};

/// The connections to a member that it has not answered yet: those of members that are ahead of it,
/// of former views, and of any other process that can reach its sockets. Their number and their
/// time are limited, whatever process opened them. While the member forms a group, only the forming
/// thread handles them (see lock()); otherwise a thread of this class accepts, reads and closes
/// them, so that they cannot fill the system's queues between two views.
class PendingConnections {
 public:
  /// Each other member sends at most one hello per view; further connections are not those of
  /// members, or are left over from earlier views.
  static constexpr std::size_t kPendingMax = 128;
  /// A member sends its hello as soon as it is connected.
  static constexpr Duration kHelloTimeout = seconds(5);
  /// A hello for a later view cannot be checked yet, so it is kept only for this time; a member
  /// whose connection is closed connects again.
  static constexpr Duration kAnswerTimeout = seconds(10);

  /// Takes over listening sockets; `unix_domain` may be invalid.
  PendingConnections(UniqueFd tcp, UniqueFd unix_domain);
  ~PendingConnections();
  PendingConnections(const PendingConnections&) = delete;
  PendingConnections& operator=(const PendingConnections&) = delete;

  /// While the result exists, only the calling thread uses the connections and may call the
  /// functions below. Any thread; waits a moment if another thread has the lock.
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  [[nodiscard]] int tcp_fd() const { return tcp_.get(); }
  [[nodiscard]] int unix_fd() const { return unix_domain_.get(); }
  /// The events to poll both sockets for: none while the process has no descriptor left.
  [[nodiscard]] short events() const;
  /// Accepts connections, reads what has arrived, and closes those that are not a member's or late.
  void receive(Instant now);
  /// In the order of their arrival. The caller answers them and removes them.
  [[nodiscard]] std::vector<PendingConnection>& waiting() { return waiting_; }
  /// Logs that the caller has closed a pending connection.
  void note_refusal(const PendingConnection& pending, const char* why) {
    log_.turned_away(pending.who, why);
  }

 private:
  void accept_all(int listener, Instant now);
  void make_place();
  [[nodiscard]] bool must_close(PendingConnection& pending, Instant now);
  void serve();

  const UniqueFd tcp_;
  const UniqueFd unix_domain_;
  const WakeUp wake_;  // tells the thread to end
  std::mutex mutex_;
  std::vector<PendingConnection> waiting_;  // guarded by mutex_, like all members below
  RejectionLog log_{"gradient port"};
  bool has_no_descriptors_ = false;
  std::thread thread_;  // the last member, because the thread uses the others
};

}  // namespace mayfly::collectives
