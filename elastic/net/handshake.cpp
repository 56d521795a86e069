#include "elastic/net/handshake.hpp"

#include <unistd.h>

#include <mutex>
#include <utility>
#include <variant>

#include "base/net/sockets.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/tls_link.hpp"

namespace mayfly::elastic {
namespace {

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

Error not_a_coordinator(const std::string& endpoint, const std::string& detail) {
  return {Errc::kCorrupt, endpoint + " does not answer as a Mayfly coordinator: " + detail};
}

/// The next message, whatever it is.
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
  const Result<Message> message = receive(fd, endpoint, deadline);
  if (!message.ok()) {
    return message.error();
  }
  if (const auto* refused = std::get_if<Refused>(&message.value())) {
    return Error{Errc::kRefused, refused->reason};  // of a coordinator that encrypts
  }
  const auto* challenge = std::get_if<Challenge>(&message.value());
  if (challenge == nullptr) {
    return unexpected(endpoint, message.value());
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

/// The last token of this process that a coordinator had, too: a handshake that fails with it
/// afterwards is the network's fault, and another attempt may succeed.
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

/// The plain side of the connection, once both sides know that they have one token.
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

/// A coordinator whose host loses its power closes no connection. From then on a member that needs
/// it looks for another one, and counts its --coordinator-timeout.
constexpr Duration kUnansweredMax = seconds(20);

}  // namespace

Result<Answer> ask_for_admission(const std::string& endpoint, ByteSpan token, Hello hello,
                                 Instant deadline, Duration connect_max) {
  Result<Endpoint> target = parse_endpoint(endpoint);
  if (!target.ok()) {
    return std::move(target).error();
  }
  const Instant now = monotonic_now();
  const Instant connected = deadline - now > connect_max ? now + connect_max : deadline;
  Result<UniqueFd> fd = connect_tcp(target.value(), connected);
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
  Result<Message> verdict = receive(raw, endpoint, deadline);
  if (!verdict.ok()) {
    return std::move(verdict).error();
  }
  if (const auto* refused = std::get_if<Refused>(&verdict.value())) {
    return Answer{std::move(fd).value(), *refused};
  }
  if (const auto* welcome = std::get_if<Welcome>(&verdict.value())) {
    return Answer{std::move(fd).value(), *welcome};
  }
  return unexpected(endpoint, verdict.value());
}

Result<OpenSession> open_session(const std::string& endpoint, ByteSpan token, Hello hello,
                                 Instant deadline) {
  Result<Answer> answer = ask_for_admission(endpoint, token, std::move(hello), deadline);
  if (!answer.ok()) {
    return std::move(answer).error();
  }
  if (const auto* refused = std::get_if<Refused>(&answer.value().verdict)) {
    return Error{Errc::kRefused, refused->reason};
  }
  return OpenSession{std::move(answer.value().fd), std::get<Welcome>(answer.value().verdict)};
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
