#pragma once

// What providers and notice sources ask for when they talk HTTP, so that their tests can answer
// without a socket. HttpClient is the real one.

#include <cstddef>
#include <functional>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {

struct HttpLimits {
  Duration connect_max = seconds(5);  ///< each: look up, connect, proxy, TLS, sending the request
  Duration answer_max = seconds(30);  ///< from the request's last byte to the answer's last
  std::size_t body_bytes_max = std::size_t{4} << 20;
  bool direct = false;  ///< never through a proxy: for metadata servers
  /// For who asks the same server again and again, over plain HTTP and without a proxy: the
  /// connection stays open for the next such request. If the server has closed it by then, that
  /// request is sent once more, so it must be one that may be carried out twice.
  bool keep_open = false;
};

class HttpSender {
 public:
  virtual ~HttpSender() = default;

  /// One request, one answer, whatever its status; redirects are not followed. One thread at a
  /// time. Errors name the host and the phase, never a header, a body or a query:
  /// kDeadline a phase took too long; kPeerLost no connection, or it broke; kRefused the
  /// certificate or the proxy says no; kCorrupt no HTTP, or more than the limits allow;
  /// kInvalidInput a request that cannot be written; kAborted. After kDeadline, kPeerLost and
  /// kCorrupt it is not known whether the other side has carried the request out.
  [[nodiscard]] virtual Result<HttpResponse> send(const HttpRequest& request,
                                                  const HttpLimits& limits) = 0;
  /// Sleeps. False, and early, if abort() was called.
  virtual bool pause(Duration length) = 0;
  /// Any thread: ends what goes on with kAborted, and everything later at once.
  virtual void abort() = 0;
};

/// When to ask again: the caller decides what is worth it, this says how often and how far apart.
struct RetryRule {
  int attempts_max = 3;
  Duration first_wait = milliseconds(250);  ///< doubles each time
  Duration wait_max = seconds(5);
};

/// Sends what `make` returns until `again` does not ask for another attempt, or the rule's attempts
/// are used up; the last answer or error. `make` is called anew each time, as signatures carry a
/// time. `again` returns how long to wait at least, or nothing if the answer is final.
[[nodiscard]] Result<HttpResponse> send_with_retries(
    HttpSender& sender, const HttpLimits& limits, const RetryRule& rule,
    const std::function<Result<HttpRequest>()>& make,
    const std::function<std::optional<Duration>(const Result<HttpResponse>&)>& again);

}  // namespace mayfly::cloud_hooks
