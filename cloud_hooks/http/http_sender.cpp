#include "cloud_hooks/http/http_sender.hpp"

#include <algorithm>

namespace mayfly::cloud_hooks {

Result<HttpResponse> send_with_retries(
    HttpSender& sender, const HttpLimits& limits, const RetryRule& rule,
    const std::function<Result<HttpRequest>()>& make,
    const std::function<std::optional<Duration>(const Result<HttpResponse>&)>& again) {
  Duration wait = rule.first_wait;
  for (int attempt = 1;; ++attempt) {
    const Result<HttpRequest> request = make();
    if (!request.ok()) {
      return request.error();
    }
    Result<HttpResponse> answer = sender.send(request.value(), limits);
    const std::optional<Duration> at_least = again(answer);
    if (!at_least || *at_least > rule.wait_max || attempt >= rule.attempts_max ||
        !sender.pause(std::max(wait, *at_least))) {
      return answer;
    }
    wait = std::min(2 * wait, rule.wait_max);
  }
}

}  // namespace mayfly::cloud_hooks
