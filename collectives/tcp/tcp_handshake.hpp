#pragma once

// How two members agree that a connection belongs to the group of one view. The connecting side
// says hello and, to a member of the same host, hands over shared memory; the accepting side
// answers with a verdict once it forms the same view itself, however late that is. After a welcome
// the connection is a channel.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "collectives/tcp/channel.hpp"
#include "collectives/tcp/shm_channel.hpp"

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
  kWelcomeShared = 0x6d79'0005,  ///< welcome, and bytes go through the memory that was handed over
  kStaleView = 0x6d79'0002,      ///< the accepting side forms a newer view already
  kWrongKey = 0x6d79'0003,
  kWrongRank = 0x6d79'0004,  ///< the two disagree about the order of members
};

/// What the member that forms (view, key) as rank `to`, after rank `from`, thinks of a hello.
/// Nothing: the hello is of a newer view and has to wait for that.
[[nodiscard]] std::optional<Verdict> judge(const Hello& hello, const Hello& expected);

/// A connection from which the hello has not been read, or not been answered.
class Incoming {
 public:
  explicit Incoming(UniqueFd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Reads what is there. False: the connection is over or not one of ours.
  [[nodiscard]] bool receive();
  /// The hello, once it is complete.
  [[nodiscard]] std::optional<Hello> hello() const;
  /// Refuses or welcomes; false if the other side is gone.
  [[nodiscard]] bool answer(Verdict verdict);
  /// After a welcome.
  [[nodiscard]] std::unique_ptr<Channel> take_channel();

 private:
  UniqueFd fd_;
  UniqueFd handed_over_;  // shared memory
  ShmSegment segment_;
  std::array<std::byte, sizeof(Hello)> raw_{};
  std::size_t received_ = 0;
};

/// The connecting side, from connect() to the verdict.
class Outgoing {
 public:
  /// `share_memory`: offer it (Unix-domain sockets only); where the system gives none, bytes go
  /// through the socket.
  Outgoing(UniqueFd fd, const Hello& hello, bool share_memory);

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The connection stands; false while the other host has not answered.
  [[nodiscard]] bool is_connected() const { return said_hello_; }
  /// What to poll for next.
  [[nodiscard]] short events() const;
  /// Goes on after poll() said so. True: welcome. Fails with kPeerLost without culprit if the
  /// connection breaks, kAborted if the view is stale, kRefused if key or rank are wrong.
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
  ShmSegment segment_;
  UniqueFd to_hand_over_;
  bool said_hello_ = false;
  bool unanswered_ = false;
  std::array<std::byte, sizeof(Verdict)> raw_{};
  std::size_t received_ = 0;
};

}  // namespace mayfly::collectives
