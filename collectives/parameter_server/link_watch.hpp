#pragma once

// Whether a connection is of no use although both sides live: what it carries is not answered, or
// it cannot be made. Says so once in each view, which may be without the other side. One thread.

#include <cstdint>

#include "base/net/sockets.hpp"
#include "base/time.hpp"

namespace mayfly::parameter_server {

enum class LinkFault : std::uint8_t {
  kNone,
  kSlow,  ///< the other host answers, its process does not: it may come
  kCut,   ///< the network answers nothing
};

/// How far a connection is, of those who make it.
enum class LinkPhase : std::uint8_t { kNone, kConnecting, kGreeting, kReady };

/// Between two attempts to connect again.
inline constexpr Duration kRetryInterval = milliseconds(20);

class LinkWatch {
 public:
  void view_came(Instant now) {
    since_ = now;
    is_told_ = false;
  }
  /// The connection stands, or is not wanted yet.
  void ready(Instant now) { since_ = now; }

  /// When to look next.
  [[nodiscard]] Instant next_look() const { return looked_ + kReachInterval; }
  /// What is to be told now. `fd` is -1 if there is no connection.
  [[nodiscard]] LinkFault look(Instant now, int fd, LinkPhase phase) {
    if (now < next_look()) {
      return LinkFault::kNone;
    }
    looked_ = now;
    const bool is_silent = fd >= 0 && is_unreachable(fd);
    const bool is_late = phase != LinkPhase::kReady && now - since_ > kPatience;
    if (is_told_ || !(is_silent || is_late)) {
      return LinkFault::kNone;
    }
    is_told_ = true;
    const bool is_made = phase == LinkPhase::kGreeting || phase == LinkPhase::kReady;
    return is_silent || !is_made ? LinkFault::kCut : LinkFault::kSlow;
  }

 private:
  static constexpr Duration kPatience = seconds(5);  // also for a process that gets no processor

  Instant since_;  // it stood last, or the view came
  Instant looked_;
  bool is_told_ = true;  // before there is a view
};

}  // namespace mayfly::parameter_server
