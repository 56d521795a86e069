#include "elastic/net/first_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.hpp"

namespace mayfly::elastic {
namespace {

constexpr auto kRetryDelay = std::chrono::milliseconds(50);
// Without an answer to the first packet; another attempt is as good as waiting on.
constexpr Duration kConnectMax = milliseconds(1500);
// Whoever starts a worker a moment before its coordinator need not read about it.
constexpr Duration kSayAfter = seconds(1);
constexpr Duration kSayEvery = seconds(15);

/// What came of asking one coordinator.
struct Attempt {
  std::optional<OpenSession> session;
  std::optional<Error> failure;
  bool is_final = false;  // no other attempt can succeed
};

Attempt ask(const std::string& endpoint, ByteSpan token, const Hello& hello, Instant deadline) {
  Attempt attempt;
  Result<Answer> answer = ask_for_admission(endpoint, token, hello, deadline, kConnectMax);
  if (!answer.ok()) {
    attempt.failure = answer.error();
    // Nobody listens yet, or the coordinator is being restarted.
    const Errc code = answer.error().code;
    attempt.is_final = code != Errc::kPeerLost && code != Errc::kIo && code != Errc::kDeadline;
  } else if (const auto* refused = std::get_if<Refused>(&answer.value().verdict)) {
    attempt.failure = Error{Errc::kRefused, refused->reason};
    attempt.is_final = refused->refusal != Refusal::kElsewhere;
  } else {
    attempt.session.emplace(
        OpenSession{std::move(answer.value().fd), std::get<Welcome>(answer.value().verdict)});
  }
  return attempt;
}

/// Tells people why it takes so long, now and then.
class Patience {
 public:
  explicit Patience(Instant deadline) : deadline_(deadline) {}

  void failed(const Error& why) {
    const Instant now = monotonic_now();
    const Duration left = deadline_ - now;
    if (now >= next_word_ && left > seconds(1)) {
      next_word_ = now + kSayEvery;
      log::warning(fmt::format("{}; trying on for {} s", why.detail, left / seconds(1)));
    }
  }

 private:
  const Instant deadline_;
  Instant next_word_ = monotonic_now() + kSayAfter;
};

}  // namespace

Result<FirstSession> open_first_session(const std::vector<std::string>& endpoints, ByteSpan token,
                                        const Hello& hello, Instant deadline) {
  Patience patience(deadline);
  while (true) {
    std::optional<Error> failure;
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      const Instant until =
          endpoints.size() > 1 ? std::min(deadline, monotonic_now() + kAttemptTimeout) : deadline;
      Attempt attempt = ask(endpoints[i], token, hello, until);
      if (attempt.session) {
        return FirstSession{i, *std::move(attempt.session)};
      }
      failure = attempt.failure;
      if (attempt.is_final) {
        return *std::move(failure);
      }
    }
    if (!failure || monotonic_now() + kRetryDelay >= deadline) {
      return failure.value_or(Error{Errc::kInvalidInput, "no coordinator is named"});
    }
    patience.failed(*failure);
    std::this_thread::sleep_for(kRetryDelay);
  }
}

}  // namespace mayfly::elastic
