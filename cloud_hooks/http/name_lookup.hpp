#pragma once

// Name look-up with a deadline. getaddrinfo() cannot be interrupted, so it runs on a thread that is
// abandoned if it takes too long. Any thread.

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::cloud_hooks {

/// The numeric addresses of `host` in the system's order, each once; for a numeric host, itself.
/// kPeerLost if there is none, kDeadline, or kAborted as soon as `aborted` returns true (it is
/// called every 20 ms).
[[nodiscard]] Result<std::vector<std::string>> look_up(const std::string& host, Instant deadline,
                                                       const std::function<bool()>& aborted);

}  // namespace mayfly::cloud_hooks
