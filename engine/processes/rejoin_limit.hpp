#pragma once

// How often a worker that was evicted comes back. Pure.

#include <deque>
#include <optional>

#include "base/time.hpp"

namespace mayfly::engine {

class RejoinLimit {
 public:
  static constexpr std::size_t kEvictionsMax = 5;
  static constexpr Duration kWindow = seconds(60);

  /// The worker was evicted: how long to wait before it joins again (at once the first time, then
  /// longer and longer); nothing after kEvictionsMax within kWindow: then it would only disturb.
  [[nodiscard]] std::optional<Duration> evicted(Instant now);

 private:
  std::deque<Instant> evictions_;  // within the window
};

}  // namespace mayfly::engine
