#pragma once

// Whether a connection is of no use although both sides live: what it carries is not answered, or
// it cannot be made. Says so once in each view, which may be without the other side. One thread.

#include "base/time.hpp"
#include "collectives/tcp/sockets.hpp"

namespace mayfly::parameter_server {

class LinkWatch {
 public:
  void view_came(Instant now) {
    since_ = now;
    is_told_ = false;
  }
  /// The connection stands.
  void ready(Instant now) { since_ = now; }

  /// When to look next.
  [[nodiscard]] Instant next_look() const { return looked_ + collectives::kReachInterval; }
  /// True if it is to be told now. `fd` is -1 if there is no connection.
  [[nodiscard]] bool is_lost(Instant now, int fd, bool is_ready) {
    if (now < next_look()) {
      return false;
    }
    looked_ = now;
    const bool is_silent = fd >= 0 && collectives::is_unreachable(fd);
    const bool is_late = !is_ready && now - since_ > kPatience;
    const bool is_lost = (is_silent || is_late) && !is_told_;
    is_told_ = is_told_ || is_lost;
    return is_lost;
  }

 private:
  static constexpr Duration kPatience = seconds(5);  // also for a process that gets no processor

  Instant since_;  // it stood last, or the view came
  Instant looked_;
  bool is_told_ = true;  // before there is a view
};

}  // namespace mayfly::parameter_server
