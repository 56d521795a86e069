#include "engine/transfers/better_state.hpp"

#include <fmt/format.h>

#include <set>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine {
namespace {

/// Long, because a worker that gives up may begin the job anew although a checkpoint exists. A
/// coordinator that was restarted verifies its newest checkpoint before it answers, and states of
/// other workers, which are sent first, may be large, too.
constexpr Duration kStateTimeout = seconds(600);
constexpr Duration kAskAgainAfter = milliseconds(200);

/// Asks one coordinator. kDeadline: it is connected but busy; kPeerLost: it cannot be reached.
Result<std::optional<nn::CheckpointFiles>> ask(const std::string& endpoint, ByteSpan token,
                                               const TransferQuestion& question,
                                               Duration answer_max) {
  Result<elastic::OpenSession> session = open_transfer(endpoint, token);
  if (!session.ok()) {
    return Error{Errc::kPeerLost, session.error().detail};
  }
  const int fd = session.value().fd.get();
  TransferRequest request;
  request.kind = TransferRequest::Kind::kQuestion;
  request.question = question;
  TRY_ASSIGN(TransferAnswer answer, request_transfer(fd, request, answer_max));
  switch (answer.verdict) {
    case TransferAnswer::Verdict::kNothing: return std::optional<nn::CheckpointFiles>();
    case TransferAnswer::Verdict::kRefused: return Error{Errc::kRefused, answer.text};
    case TransferAnswer::Verdict::kTransfer: break;
  }
  IncomingCheckpoint incoming(std::move(answer.offer));
  TRY(incoming.receive(fd));
  Result<nn::CheckpointFiles> files = incoming.take();
  return files.ok() ? Result<std::optional<nn::CheckpointFiles>>(std::move(files).value())
                    : Result<std::optional<nn::CheckpointFiles>>(std::move(files).error());
}

}  // namespace

Result<std::optional<nn::CheckpointFiles>> ask_for_better_state(
    const std::vector<std::string>& endpoints, ByteSpan token, const TransferQuestion& question,
    const std::function<bool()>& gives_up, Duration answer_max) {
  const Instant begun = monotonic_now();
  std::set<std::string> logged;  // each line once
  while (true) {
    bool is_answered = false;
    bool is_busy = false;
    for (const std::string& endpoint : endpoints) {  // a standby answers without knowing the state
      Result<std::optional<nn::CheckpointFiles>> answer =
          ask(endpoint, token, question, answer_max);
      const bool is_said =
          answer.ok() ? answer.value().has_value() : answer.error().code == Errc::kRefused;
      if (is_said) {
        return answer;
      }
      if (!answer.ok()) {
        const std::string line = fmt::format("{} does not provide a starting state: {}", endpoint,
                                             answer.error().detail);
        if (logged.insert(line).second) {
          log::info(line);
        }
      }
      is_answered = is_answered || answer.ok();
      is_busy = is_busy || (!answer.ok() && answer.error().code == Errc::kDeadline);
    }
    const bool is_settled = is_answered && !is_busy;
    const bool is_over = monotonic_now() - begun >= kStateTimeout;
    const bool is_given_up = !is_settled && !is_over && gives_up();
    if (question.needs_state && is_given_up) {
      return Error{Errc::kAborted, "asked to leave before the state had arrived"};
    }
    if (question.needs_state && is_over && !is_answered) {
      return Error{Errc::kPeerLost, "no coordinator provides a starting state"};
    }
    if (is_settled || is_over || is_given_up) {
      return std::optional<nn::CheckpointFiles>();
    }
    std::this_thread::sleep_for(kAskAgainAfter);
  }
}

}  // namespace mayfly::engine
