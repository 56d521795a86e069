#pragma once

// The HTTP port of providers and notice sources, so that their tests need no socket; HttpClient is
// the implementation. Repeating requests, and the translation of answers to the errors of
// providers, are the same for all clouds.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {

struct HttpLimits {
  Duration connect_max = seconds(5);  ///< each: look up, connect, proxy, TLS, sending the request
  Duration answer_max = seconds(30);  ///< from the request's last byte to the answer's last
  std::size_t body_bytes_max = std::size_t{4} << 20;
  bool direct = false;  ///< never through a proxy: for metadata servers
  /// Keeps the connection open for the next such request, for callers that poll one server, over
  /// plain HTTP and without a proxy. If the server has closed it by then, the request is sent
  /// again, so it must be safe to carry it out twice.
  bool keep_open = false;
};

class HttpSender {
 public:
  virtual ~HttpSender() = default;

  /// Sends one request and returns its answer, with any status; redirects are not followed. One
  /// thread at a time. Errors name the host and the phase, never a header, a body or a query:
  /// kDeadline a phase took too long; kPeerLost no connection, or it broke; kRefused the
  /// certificate is not valid, or the proxy refuses; kCorrupt no HTTP, or more than the limits
  /// allow; kInvalidInput a request that cannot be written; kAborted. After kDeadline, kPeerLost
  /// and kCorrupt it is not known whether the other side has carried the request out.
  [[nodiscard]] virtual Result<HttpResponse> send(const HttpRequest& request,
                                                  const HttpLimits& limits) = 0;
  /// Sleeps. Returns early with false if abort() was called.
  virtual bool pause(Duration length) = 0;
  /// Any thread: ends the current request with kAborted, and all later ones at once.
  virtual void abort() = 0;
};

/// A rule for send_with_retries(): repeat after a temporary transport error, 429 and 5xx. Returns
/// how long to wait at least; nothing if the answer is final.
[[nodiscard]] std::optional<Duration> worth_another_try(const Result<HttpResponse>& answer);

/// Sends what `make` returns, at most three times, until `again` returns nothing; the last answer
/// or error. `make` is called anew each time, as signatures carry a time. The first wait is a
/// quarter of a second, the next twice as long, or the time that `again` returns if that is longer.
/// If a server asks for more than five seconds, its answer is returned at once: the caller can try
/// other things meanwhile.
[[nodiscard]] Result<HttpResponse> send_with_retries(
    HttpSender& sender, const HttpLimits& limits, const std::function<Result<HttpRequest>()>& make,
    const std::function<std::optional<Duration>(const Result<HttpResponse>&)>& again =
        worth_another_try);

/// The first line of a text from outside, printable characters only, at most 200 of them.
[[nodiscard]] std::string readable(std::string_view text);

/// Whether a text has the form of a name in a cloud (a zone, a machine type, a job): 1 to 63 of the
/// characters a-z, 0-9, '-' and those in `also`.
[[nodiscard]] bool is_cloud_name(std::string_view text, std::string_view also = "");
/// The words between spaces and commas.
[[nodiscard]] std::vector<std::string> words_in(std::string_view text);

/// The error for a request without an answer: kConfig if the certificate, the proxy or the request
/// itself is the reason, otherwise kRate: the outcome is unknown, and the same request may be
/// repeated.
[[nodiscard]] ProviderError no_answer(const Error& error);

/// The error for an answer whose text gives no better reason, by its status alone. Redirects are
/// kConfig (they are not followed), 5xx and answers that cannot be read are kRate.
[[nodiscard]] ProviderError by_status(int status, std::string detail);

/// Passes on a value that was read from an answer. kRate if the answer could not be read, because
/// its outcome is then unknown.
template <typename T>
[[nodiscard]] Answer<T> or_unreadable(Result<T> read) {
  if (!read.ok()) {
    return ProviderError{ProviderErrorKind::kRate, read.error().detail};
  }
  return std::move(read).value();
}

/// The value of a Retry-After header, if it is in seconds.
[[nodiscard]] std::optional<Duration> retry_after(const HttpResponse& answer);

}  // namespace mayfly::cloud_hooks
