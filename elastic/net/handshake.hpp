#pragma once

// The first words on a control connection. The coordinator sends Challenge; the one who connects
// answers Hello with a proof of the job token; the coordinator answers Welcome or Refused.

#include <optional>
#include <string>
#include <variant>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

/// For connecting and the handshake where there are several coordinators to ask: one that does not
/// answer is not waited for. One that answers at all does so in a millisecond.
inline constexpr Duration kAttemptTimeout = seconds(1);

/// A coordinator's answer to Hello.
struct Answer {
  UniqueFd fd;
  std::variant<Welcome, Refused> verdict;
};

/// Connects once and goes through the handshake. Fills in protocol, nonce, proof, host and pid of
/// `hello`. kPeerLost if nobody listens or the connection broke; kDeadline, also if there is no
/// connection after `connect_max`; kCorrupt if something else answers there.
[[nodiscard]] Result<Answer> ask_for_admission(const std::string& endpoint, ByteSpan token,
                                               Hello hello, Instant deadline,
                                               Duration connect_max = Duration::max());

/// A connection that the coordinator has welcomed.
struct OpenSession {
  UniqueFd fd;
  Welcome welcome;
};

/// The same for those to whom a refusal is an error: kRefused with the coordinator's reason.
[[nodiscard]] Result<OpenSession> open_session(const std::string& endpoint, ByteSpan token,
                                               Hello hello, Instant deadline);

/// The coordinator's side: why this Hello must be refused, if it must.
[[nodiscard]] std::optional<std::string> reason_to_refuse(const Hello& hello, ByteSpan token,
                                                          ByteSpan challenge_nonce);

}  // namespace mayfly::elastic
