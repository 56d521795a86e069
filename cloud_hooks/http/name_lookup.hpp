#pragma once

// Name look-up with a deadline. getaddrinfo() cannot be interrupted, so it runs on a thread that is
// left behind when it takes too long. Any thread.

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::cloud_hooks {

/// The numeric addresses of `host` in the system's order, each once; a numeric host is its own.
/// kPeerLost if there is none, kDeadline, or kAborted as soon as `aborted` says so (it is asked
/// every 20 ms).
[[nodiscard]] Result<std::vector<std::string>> look_up(const std::string& host, Instant deadline,
                                                       const std::function<bool()>& aborted);

}  // namespace mayfly::cloud_hooks
