#include "cloud_hooks/http/http_sender.hpp"

#include <algorithm>

#include "base/parse.hpp"
#include "base/try_assign.hpp"

namespace mayfly::cloud_hooks {

Result<HttpResponse> send_with_retries(
    HttpSender& sender, const HttpLimits& limits, const std::function<Result<HttpRequest>()>& make,
    const std::function<std::optional<Duration>(const Result<HttpResponse>&)>& again) {
  constexpr int kAttemptsMax = 3;
  constexpr Duration kWaitMax = seconds(5);
  Duration wait = milliseconds(250);
  for (int attempt = 1;; ++attempt) {
    TRY_ASSIGN(const HttpRequest request, make());
    Result<HttpResponse> answer = sender.send(request, limits);
    const std::optional<Duration> at_least = again(answer);
    if (!at_least || *at_least > kWaitMax || attempt >= kAttemptsMax ||
        !sender.pause(std::max(wait, *at_least))) {
      return answer;
    }
    wait *= 2;
  }
}

std::string readable(std::string_view text) {
  constexpr std::size_t kCharactersMax = 200;
  text = text.substr(0, std::min({text.size(), text.find_first_of("\r\n"), kCharactersMax}));
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

bool is_cloud_name(std::string_view text, std::string_view also) {
  return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           also.find(c) != std::string_view::npos;
  });
}

std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string_view part : split(text, ',')) {
    for (const std::string_view word : split(part, ' ')) {
      if (!word.empty()) {
        words.emplace_back(word);
      }
    }
  }
  return words;
}

ProviderError no_answer(const Error& error) {
  const bool person_must_act = error.code == Errc::kRefused || error.code == Errc::kInvalidInput;
  return {person_must_act ? ProviderErrorKind::kConfig : ProviderErrorKind::kRate, error.detail};
}

ProviderError by_status(int status, std::string detail) {
  ProviderErrorKind kind = ProviderErrorKind::kConfig;
  if (status == 401 || status == 403) {
    kind = ProviderErrorKind::kAuth;
  } else if (status == 408 || status == 429 || status >= 500 || status / 100 == 2) {
    kind = ProviderErrorKind::kRate;
  }
  return {kind, std::move(detail)};
}

std::optional<Duration> retry_after(const HttpResponse& answer) {
  constexpr std::int64_t kSecondsMax = 3600;
  const std::optional<std::string_view> text = answer.header("Retry-After");
  // A date is ignored: it is rare, and the local clock may be wrong.
  const std::optional<std::int64_t> count = text ? number_in<std::int64_t>(*text) : std::nullopt;
  return count && *count >= 0 ? std::optional<Duration>(seconds(std::min(*count, kSecondsMax)))
                              : std::nullopt;
}

std::optional<Duration> worth_another_try(const Result<HttpResponse>& answer) {
  if (!answer.ok()) {
    const Errc code = answer.error().code;
    const bool passing =
        code == Errc::kDeadline || code == Errc::kPeerLost || code == Errc::kCorrupt;
    return passing ? std::optional<Duration>(0) : std::nullopt;
  }
  const int status = answer.value().status;
  if (status != 429 && status / 100 != 5) {
    return std::nullopt;
  }
  return retry_after(answer.value()).value_or(Duration(0));
}

}  // namespace mayfly::cloud_hooks
