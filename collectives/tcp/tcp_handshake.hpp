#pragma once

// How two neighbours agree that a connection belongs to the ring of one view. The connecting side
// says hello; the accepting side answers with a verdict once it forms the same view itself, however
// late that is. After a welcome the connection carries the ring's bytes from the connecting side.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::collectives {

struct Hello {
  std::uint64_t magic = 0;
  std::uint64_t view = 0;
  std::uint64_t key = 0;
  std::uint32_t from = 0;  ///< rank of the connecting side
  std::uint32_t to = 0;    ///< rank of the accepting side
};
static_assert(sizeof(Hello) == 32);

inline constexpr std::uint64_t kHelloMagic = 0x3130'676e'6972'796dULL;  // "myring01"

enum class Verdict : std::uint32_t {
  kWelcome = 0x6d79'0001,
  kStaleView = 0x6d79'0002,  ///< the accepting side forms a newer view already
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
  /// Answers; false if the other side is gone.
  [[nodiscard]] bool answer(Verdict verdict);
  [[nodiscard]] UniqueFd take() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  std::array<std::byte, sizeof(Hello)> raw_{};
  std::size_t received_ = 0;
};

/// The connecting side, from connect() to the verdict.
class Outgoing {
 public:
  Outgoing(UniqueFd fd, const Hello& hello) : fd_(std::move(fd)), hello_(hello) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// What to poll for next.
  [[nodiscard]] short events() const;
  /// Goes on after poll() said so. True: welcome. Fails with kPeerLost without culprit if the
  /// connection breaks, kAborted if the view is stale, kRefused if key or rank are wrong.
  [[nodiscard]] Result<bool> advance();
  [[nodiscard]] UniqueFd take() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  Hello hello_;
  bool said_hello_ = false;
  std::array<std::byte, sizeof(Verdict)> raw_{};
  std::size_t received_ = 0;
};

}  // namespace mayfly::collectives
