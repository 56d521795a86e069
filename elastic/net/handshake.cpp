#include "elastic/net/handshake.hpp"

#include <unistd.h>

#include <utility>
#include <variant>

#include "elastic/net/job_token.hpp"
#include "elastic/net/sockets.hpp"

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

/// The next message, which must be of type T or Refused.
template <typename T>
Result<T> expect(int fd, const std::string& endpoint, Instant deadline) {
  Result<Message> message = receive_message(fd, deadline);
  if (!message.ok()) {
    const Error& error = message.error();
    if (error.code == Errc::kCorrupt) {
      return not_a_coordinator(endpoint, error.detail);
    }
    return Error{error.code, endpoint + ": " + error.detail};
  }
  if (const auto* refused = std::get_if<Refused>(&message.value())) {
    return Error{Errc::kRefused, refused->reason};
  }
  if (auto* wanted = std::get_if<T>(&message.value())) {
    return std::move(*wanted);
  }
  return not_a_coordinator(endpoint, std::string("unexpected ") + name_of(message.value()));
}

}  // namespace

Result<OpenSession> open_session(const std::string& endpoint, ByteSpan token, Hello hello,
                                 Instant deadline) {
  Result<Endpoint> target = parse_endpoint(endpoint);
  if (!target.ok()) {
    return std::move(target).error();
  }
  Result<UniqueFd> fd = connect_tcp(target.value(), deadline);
  if (!fd.ok()) {
    return std::move(fd).error();
  }
  const int raw = fd.value().get();
  Result<Challenge> challenge = expect<Challenge>(raw, endpoint, deadline);
  if (!challenge.ok()) {
    return std::move(challenge).error();
  }
  if (challenge.value().nonce.size() != kNonceBytes) {
    return not_a_coordinator(endpoint, "a challenge of the wrong size");
  }
  hello.protocol = kProtocolVersion;
  hello.nonce = make_nonce();
  hello.proof = make_proof(token, challenge.value().nonce, hello.nonce, hello.role);
  hello.host = host_name();
  hello.pid = static_cast<std::uint32_t>(::getpid());
  if (Result<void> sent = send_message(raw, hello, deadline); !sent.ok()) {
    return std::move(sent).error();
  }
  Result<Welcome> welcome = expect<Welcome>(raw, endpoint, deadline);
  if (!welcome.ok()) {
    return std::move(welcome).error();
  }
  return OpenSession{std::move(fd).value(), welcome.value().member};
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
