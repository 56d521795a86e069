#pragma once

// The server's answers to requests. Pure. Any thread.

#include <string>

namespace mayfly::observe {

struct Reply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string headers;  ///< more of them, each with its end of line
  std::string body;
  bool is_stream = false;  ///< a stream of events follows
};

/// The status line and all headers: those of the page's policy, and `reply.headers`.
[[nodiscard]] std::string head_of(const Reply& reply);
/// The answer to a request that refusal() (access.hpp) refuses, that names nothing on this server
/// (404), or that exceeds its limits (503).
[[nodiscard]] Reply refusal_reply(int status);

}  // namespace mayfly::observe
