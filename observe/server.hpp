#pragma once

// Serves the page of some runs over HTTP and follows their files. New records are announced to the
// pages that are open, as server-sent events, and the pages fetch what they lack. Numbers are only
// given to clients that present the gate's key (access.hpp). Each connection has a bounded buffer,
// a bounded time, and one request; it is closed if its client does not read the answer. No request
// can change anything, and no part of a request names a file.

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "observe/access.hpp"
#include "observe/run_follower.hpp"

namespace mayfly::observe {

/// Limits; tests use shorter times.
struct ServerLimits {
  std::size_t connections_max = 96;                 ///< the oldest without an answer yet is closed
  std::size_t viewers_max = 16;                     ///< open streams of events; others receive 503
  std::size_t answer_bytes_max = 64 * 1024 * 1024;  ///< of all answers that are being sent
  Duration request_max = seconds(5);                ///< until the request is complete
  Duration stall_max = seconds(10);                 ///< without progress while an answer is sent
  Duration poll_interval = milliseconds(100);       ///< between two looks at the files
  Duration alive_interval = seconds(2);             ///< between two signs of life in a stream
};

struct ServerOptions {
  UniqueFd listener;  ///< a listening TCP socket, not blocking
  Gate gate;
  std::vector<std::unique_ptr<RunFollower>> runs;
  ServerLimits limits;
};

class Server {
 public:
  [[nodiscard]] static std::unique_ptr<Server> make(ServerOptions options);
  virtual ~Server() = default;
  /// Serves until stop(), or until SIGINT or SIGTERM if `until_signal`.
  virtual void run(bool until_signal) = 0;
  // Any thread:
  /// run() returns at once.
  virtual void stop() = 0;
  /// Nothing is recorded any more: run() returns when the pages that are open have had time to
  /// fetch what came last, and after `most` in any case.
  virtual void finish(Duration most) = 0;
};

}  // namespace mayfly::observe
