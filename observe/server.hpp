#pragma once

// Serves the page of some runs over HTTP and follows their files. New records are announced to open
// pages by server-sent events, and the pages fetch the records that they lack. Only clients that
// present the gate's key (access.hpp) receive numbers. Each connection has a bounded buffer, a
// bounded time, and one request; it is closed if its client does not read the answer. No request
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
  std::size_t connections_max = 96;                 ///< with more, the oldest without an answer is
                                                    ///< closed
  std::size_t viewers_max = 16;                     ///< open streams of events; others receive 503
  std::size_t answer_bytes_max = 64 * 1024 * 1024;  ///< of all answers that are being sent
  Duration request_max = seconds(5);                ///< until the request is complete
  Duration stall_max = seconds(10);                 ///< without progress while an answer is sent
  Duration poll_interval = milliseconds(100);       ///< between two readings of the files
  Duration alive_interval = seconds(2);             ///< between two keep-alive messages in a stream
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
  /// Makes run() return at once.
  virtual void stop() = 0;
  /// No more records will be written: run() returns when open pages have had time to fetch the last
  /// records, and after `most` in any case.
  virtual void finish(Duration most) = 0;
};

}  // namespace mayfly::observe
