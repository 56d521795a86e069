#include <utility>

#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// How a job ends: the end goes on record, then all members are told. A coordinator that died in
// between left members that wait for the word, and perhaps servers that still run; the next one on
// its log ends the job once more.

namespace mayfly::elastic {
namespace {

DismissReason reason_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone: return DismissReason::kJobDone;
    case Outcome::kStopped: return DismissReason::kJobStopped;
    case Outcome::kFailed:
    case Outcome::kTooFewWorkers: return DismissReason::kJobFailed;
  }
  UNREACHABLE("every outcome has a reason");
}

}  // namespace

bool Coordinator::end_if_over() {
  std::size_t finished = 0;
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kStopped && peer.stopped.finished) {
      ++finished;
    }
  }
  if (finished > 0 && finished == membership_.count(Peer::Phase::kStopped)) {
    end(Outcome::kDone, "", true);
    return true;
  }
  // If some have done the last step, the others can have it in one more view, and nothing is left
  // to resume.
  const bool may_finish = finished > 0 && !missing_workers() && !missing_quorum();
  if (stop_asked_ && (!may_finish || std::exchange(is_finishing_, true))) {
    end(Outcome::kStopped, *stop_asked_, membership_.view().has_value());
    return true;
  }
  return false;
}

void Coordinator::end(Outcome outcome, const std::string& detail, bool with_checkpoint) {
  ENSURE(phase_ != Phase::kEnded, "a job ends once");
  outbox_.append(log_record::JobEnded{outcome, detail}, true);
  const std::optional<MemberId> writer =
      with_checkpoint ? membership_.holder_of_newest_state() : std::optional<MemberId>{};
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase != Peer::Phase::kDismissed) {
      dismiss(id, reason_of(outcome), id == writer, detail);
    }
  }
  phase_ = Phase::kEnded;
  store_.clear();
  outbox_.add(coordinator_effect::JobEnded{outcome, detail});
}

/// Members that come back were not told; those that do not come were, or are lost. Nothing is left
/// to agree on, so no majority is needed.
void Coordinator::end_again_if_due() {
  const Instant since = first_return_.value_or(*collecting_since_);
  const bool is_complete = membership_.view() && membership_.missing().empty();
  if (!is_complete && now_ - since < options_.resume_timeout) {
    return;
  }
  for (const auto& [id, peer] : membership_.peers()) {
    if (peer.phase == Peer::Phase::kReturning && peer.resume) {
      place(id);
    }
  }
  const log_record::JobEnded first = *ended_before_;
  end(first.outcome, first.detail,
      membership_.view().has_value() && first.outcome != Outcome::kFailed);
}

}  // namespace mayfly::elastic
