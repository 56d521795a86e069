#include "elastic/net/handshake.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "base/log.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/tls_link.hpp"

namespace mayfly::elastic {
namespace {

Error not_a_coordinator(const std::string& endpoint, const std::string& detail) {
  return {Errc::kCorrupt, endpoint + " does not answer as a Mayfly coordinator: " + detail};
}

/// Receives the next message, of any kind.
Result<Message> receive(int fd, const std::string& endpoint, Instant deadline) {
  Result<Message> message = receive_message(fd, deadline);
  if (!message.ok()) {
    const Error& error = message.error();
    if (error.code == Errc::kCorrupt) {
      return not_a_coordinator(endpoint, error.detail);
    }
    return Error{error.code, endpoint + ": " + error.detail};
  }
  return message;
}

Error unexpected(const std::string& endpoint, const Message& message) {
  return not_a_coordinator(endpoint, std::string("unexpected ") + name_of(message));
}

/// Answers the challenge on a fresh connection.
Result<void> present(int fd, const std::string& endpoint, ByteSpan token, Hello hello,
                     Instant deadline) {
  TRY_ASSIGN(const Message message, receive(fd, endpoint, deadline));
  if (const auto* refused = std::get_if<Refused>(&message)) {
    return Error{Errc::kRefused, refused->reason};  // a coordinator that requires encryption
  }
  const auto* challenge = std::get_if<Challenge>(&message);
  if (challenge == nullptr) {
    return unexpected(endpoint, message);
  }
  if (challenge->nonce.size() != kNonceBytes) {
    return not_a_coordinator(endpoint, "a challenge of the wrong size");
  }
  hello.protocol = kProtocolVersion;
  hello.nonce = make_nonce();
  hello.proof = make_proof(token, challenge->nonce, hello.nonce, hello.role);
  hello.host = host_name();
  hello.pid = static_cast<std::uint32_t>(::getpid());
  return send_message(fd, hello, deadline);
}

/// The last token of this process that was also a coordinator's token. If a handshake fails with it
/// afterwards, the network is the cause, and another attempt may succeed.
class GoodToken {
 public:
  void keep(ByteSpan token) {
    const std::lock_guard lock(mutex_);
    key_ = tls_key(token);
  }
  [[nodiscard]] bool is(ByteSpan token) {
    const std::lock_guard lock(mutex_);
    return key_ == tls_key(token);
  }

 private:
  std::mutex mutex_;
  Bytes key_;  // guarded by mutex_
};

/// The plain side of the connection, once both sides have proved that they have the same token.
Result<UniqueFd> encrypted(UniqueFd socket, const std::string& endpoint, ByteSpan token,
                           Instant deadline) {
  static GoodToken good_token;
  SecureSocket secured = secure_client(std::move(socket), token);
  if (!secured.fd.valid()) {
    return Error{Errc::kIo, endpoint + ": no descriptors are left"};
  }
  if (const Result<void> open = secured.link->wait_until_open(deadline); !open.ok()) {
    const Error& error = open.error();
    return error.code == Errc::kRefused && good_token.is(token)
               ? Error{Errc::kPeerLost, endpoint + ": the TLS handshake failed"}
               : Error{error.code, endpoint + ": " + error.detail};
  }
  good_token.keep(token);
  return std::move(secured.fd);
}

/// If a coordinator's host loses its power, its connections are not closed. After this time a
/// member that needs the coordinator looks for another one, and --coordinator-timeout begins.
constexpr Duration kUnansweredMax = seconds(20);

constexpr auto kRetryDelay = std::chrono::milliseconds(50);
// If the first packet is not answered for so long, another attempt is as good as further waiting.
constexpr Duration kConnectMax = milliseconds(1500);
// Limit of an attempt, which may be cancelled, if the only coordinator of the list accepts the
// connection and does not answer.
constexpr Duration kOnlyAttemptTimeout = seconds(5);
// Limit of an attempt if all coordinators of the list were asked before: a coordinator that speaks
// only TLS answers after kSilenceMax.
constexpr Duration kLaterAttemptTimeout = kSilenceMax + seconds(1);
// A worker that is started a moment before its coordinator need not say so.
constexpr Duration kSayAfter = seconds(1);
constexpr Duration kSayEvery = seconds(15);

/// The result of asking one coordinator for admission.
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
    // No coordinator listens yet, or the coordinator is being restarted.
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

/// Logs from time to time why connecting takes so long.
class WaitLog {
 public:
  explicit WaitLog(Instant deadline) : deadline_(deadline) {}

  void failed(const Error& why) {
    const Instant now = monotonic_now();
    const Duration left = deadline_ - now;
    if (now >= next_line_ && left > seconds(1)) {
      next_line_ = now + kSayEvery;
      log::warning(fmt::format("{}; retrying for {} s", why.detail, left / seconds(1)));
    }
  }

 private:
  const Instant deadline_;
  Instant next_line_ = monotonic_now() + kSayAfter;
};

}  // namespace

Result<Answer> ask_for_admission(const std::string& endpoint, ByteSpan token, Hello hello,
                                 Instant deadline, Duration connect_max) {
  TRY_ASSIGN(Endpoint target, parse_endpoint(endpoint));
  const Instant now = monotonic_now();
  const Instant connected = deadline - now > connect_max ? now + connect_max : deadline;
  Result<UniqueFd> fd = connect_tcp(target, connected);
  if (!fd.ok()) {
    return std::move(fd).error();
  }
  limit_unanswered(fd.value().get(), kUnansweredMax);
  if (is_encrypted(token)) {
    fd = encrypted(std::move(fd).value(), endpoint, token, deadline);
    if (!fd.ok()) {
      return std::move(fd).error();
    }
  }
  const int raw = fd.value().get();
  TRY(present(raw, endpoint, token, std::move(hello), deadline));
  TRY_ASSIGN(Message verdict, receive(raw, endpoint, deadline));
  if (const auto* refused = std::get_if<Refused>(&verdict)) {
    return Answer{std::move(fd).value(), *refused};
  }
  if (const auto* welcome = std::get_if<Welcome>(&verdict)) {
    return Answer{std::move(fd).value(), *welcome};
  }
  return unexpected(endpoint, verdict);
}

Result<OpenSession> open_session(const std::string& endpoint, ByteSpan token, Hello hello,
                                 Instant deadline) {
  TRY_ASSIGN(Answer answer, ask_for_admission(endpoint, token, std::move(hello), deadline));
  if (const auto* refused = std::get_if<Refused>(&answer.verdict)) {
    return Error{Errc::kRefused, refused->reason};
  }
  return OpenSession{std::move(answer.fd), std::get<Welcome>(answer.verdict)};
}

Result<FirstSession> open_first_session(const std::vector<std::string>& endpoints, ByteSpan token,
                                        const Hello& hello, Instant deadline,
                                        const std::function<bool()>& is_called_off) {
  WaitLog wait_log(deadline);
  Duration attempt_max = endpoints.size() > 1 ? kAttemptTimeout
                         : is_called_off      ? kOnlyAttemptTimeout
                                              : Duration::max();
  while (true) {
    std::optional<Error> failure;
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      const Instant now = monotonic_now();
      const Instant until = deadline - now > attempt_max ? now + attempt_max : deadline;
      Attempt attempt = ask(endpoints[i], token, hello, until);
      if (attempt.session) {
        return FirstSession{i, *std::move(attempt.session)};
      }
      failure = attempt.failure;
      if (attempt.is_final) {
        return *std::move(failure);
      }
      if (is_called_off && is_called_off()) {
        return Error{Errc::kAborted, "asked to leave before a coordinator answered"};
      }
    }
    if (!failure || monotonic_now() + kRetryDelay >= deadline) {
      return failure.value_or(Error{Errc::kInvalidInput, "no coordinator is named"});
    }
    wait_log.failed(*failure);
    attempt_max = std::max(attempt_max, kLaterAttemptTimeout);
    std::this_thread::sleep_for(kRetryDelay);
  }
}

Result<CommandReply> send_command(const std::string& endpoint, ByteSpan token,
                                  const Command& command, Duration timeout) {
  const Instant deadline = monotonic_now() + timeout;
  Hello hello;
  hello.role = Role::kOperator;
  TRY_ASSIGN(OpenSession session, open_session(endpoint, token, std::move(hello), deadline));
  const int fd = session.fd.get();
  TRY(send_message(fd, command, deadline));
  TRY_ASSIGN(Message answer, receive_message(fd, deadline));
  if (auto* reply = std::get_if<CommandReply>(&answer)) {
    return std::move(*reply);
  }
  return Error{Errc::kCorrupt, std::string("unexpected ") + name_of(answer)};
}

std::optional<std::string> reason_to_refuse(const Hello& hello, ByteSpan token,
                                            ByteSpan challenge_nonce) {
  if (!proof_holds(token, challenge_nonce, hello)) {
    return "wrong token";
  }
  if (hello.protocol != kProtocolVersion) {
    return "protocol version " + std::to_string(hello.protocol) + ", the coordinator speaks " +
           std::to_string(kProtocolVersion);
  }
  return std::nullopt;
}

}  // namespace mayfly::elastic
