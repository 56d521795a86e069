#pragma once

// The first messages on a control connection: the coordinator sends Challenge, the client answers
// with Hello, which proves that it knows the job token, and the coordinator answers with Welcome or
// Refused. All clients of a coordinator use these functions: new workers, members, sentinels and
// commands. Any thread; they block until their deadline.

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

/// Limit on connecting and the handshake if there are several coordinators, so that one that does
/// not answer delays the member little. A working coordinator answers within a millisecond.
inline constexpr Duration kAttemptTimeout = seconds(1);

/// A coordinator's answer to Hello.
struct Answer {
  UniqueFd fd;
  std::variant<Welcome, Refused> verdict;
};

/// Connects once and goes through the handshake. Fills in protocol, nonce, proof, host and pid of
/// `hello`. kPeerLost if no process listens or the connection broke; kDeadline, also if there is no
/// connection after `connect_max`; kCorrupt if something else answers there.
[[nodiscard]] Result<Answer> ask_for_admission(const std::string& endpoint, ByteSpan token,
                                               Hello hello, Instant deadline,
                                               Duration connect_max = Duration::max());

/// A connection that the coordinator has welcomed.
struct OpenSession {
  UniqueFd fd;
  Welcome welcome;
};

/// The same where a refusal is an error: kRefused with the coordinator's reason.
[[nodiscard]] Result<OpenSession> open_session(const std::string& endpoint, ByteSpan token,
                                               Hello hello, Instant deadline);

struct FirstSession {
  std::size_t endpoint = 0;  ///< index of the one that answered
  OpenSession session;
};

/// Finds a coordinator that admits a new worker: asks one endpoint after the other, repeatedly
/// until the deadline, as long as no coordinator listens there or none is in charge. Sleeps in
/// between. kRefused with the reason if a coordinator refuses finally; otherwise the error of the
/// last attempt. kAborted soon after `is_called_off`, which is called after each failed attempt,
/// returns true.
[[nodiscard]] Result<FirstSession> open_first_session(
    const std::vector<std::string>& endpoints, ByteSpan token, const Hello& hello, Instant deadline,
    const std::function<bool()>& is_called_off = {});

/// Sends one command to a running coordinator ("host:port"), for `mayfly status` and similar
/// commands.
[[nodiscard]] Result<CommandReply> send_command(const std::string& endpoint, ByteSpan token,
                                                const Command& command, Duration timeout);

/// The coordinator's side: the reason why this Hello must be refused, if there is one.
[[nodiscard]] std::optional<std::string> reason_to_refuse(const Hello& hello, ByteSpan token,
                                                          ByteSpan challenge_nonce);

}  // namespace mayfly::elastic
