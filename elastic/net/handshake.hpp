#pragma once

// The first messages on a control connection: the coordinator sends Challenge, the client answers
// Hello with a proof of the job token, and the coordinator answers Welcome or Refused. And what
// processes use that to reach a coordinator: new workers, members, sentinels, commands.

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

/// The same where a refusal is an error: kRefused with the coordinator's reason.
[[nodiscard]] Result<OpenSession> open_session(const std::string& endpoint, ByteSpan token,
                                               Hello hello, Instant deadline);

struct FirstSession {
  std::size_t endpoint = 0;  ///< index of the one that answered
  OpenSession session;
};

/// How a new worker finds a coordinator that takes it in: asks one after the other, round and round
/// until the deadline, while none listens or those that do are not in charge. Sleeps in between.
/// kRefused with the reason if one refuses for good; otherwise the failure of the last attempt.
/// kAborted soon after `is_called_off` says so, which is asked after each attempt that fails.
[[nodiscard]] Result<FirstSession> open_first_session(
    const std::vector<std::string>& endpoints, ByteSpan token, const Hello& hello, Instant deadline,
    const std::function<bool()>& is_called_off = {});

/// One command to a running coordinator ("host:port"), for `mayfly status` and its like.
[[nodiscard]] Result<CommandReply> send_command(const std::string& endpoint, ByteSpan token,
                                                const Command& command, Duration timeout);

/// The coordinator's side: why this Hello must be refused, if it must.
[[nodiscard]] std::optional<std::string> reason_to_refuse(const Hello& hello, ByteSpan token,
                                                          ByteSpan challenge_nonce);

}  // namespace mayfly::elastic
