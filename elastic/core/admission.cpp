#include "elastic/core/admission.hpp"

#include <utility>

#include "elastic/core/returns.hpp"

namespace mayfly::elastic {

std::optional<std::string> reason_to_refuse(const Hello& hello, JobPhase phase,
                                            std::uint32_t workers_max, const Term& term,
                                            const Membership& membership) {
  if (hello.protocol != kProtocolVersion) {
    return "protocol: the job has version " + std::to_string(kProtocolVersion) +
           ", this worker has version " + std::to_string(hello.protocol);
  }
  if (hello.role != Role::kWorker) {
    return "only workers become members";
  }
  if (phase == JobPhase::kEnded) {
    return "the job has ended";
  }
  if (auto difference = term.difference(hello)) {
    return difference;
  }
  const std::size_t here = membership.peers().size() - membership.count(Peer::Phase::kDismissed);
  if (here >= workers_max) {
    return "the job has all the workers it may have (" + std::to_string(workers_max) + ")";
  }
  return std::nullopt;
}

std::optional<Refused> reason_to_turn_away(const Hello& hello, JobPhase phase,
                                           std::uint32_t workers_max, const Term& term,
                                           const Membership& membership) {
  if (auto reason = reason_to_refuse(hello, phase, workers_max, term, membership)) {
    return Refused{std::move(*reason), Refusal::kFinal};
  }
  if (is_impossible(hello)) {
    return Refused{"no job has such a member", Refusal::kFinal};
  }
  if (term.is_of_another_job(hello)) {
    return Refused{"this coordinator leads another job", Refusal::kElsewhere};
  }
  if (hello.joins_again) {  // under its id, as a quorum may need its vote
    return std::nullopt;
  }
  // One that has entered no view yet can always wait for the next; and if it knows more than we do,
  // it is not for us to judge.
  const std::optional<View>& last = membership.view();
  const bool is_news = hello.view > (last ? last->id : ViewId{});
  const bool is_over = phase == JobPhase::kRunning || !membership.is_in_view(hello.member);
  const bool is_late =
      phase != JobPhase::kResuming && hello.view != ViewId{} && !is_news && is_over;
  if (membership.is_fenced(hello.member) || (is_late && hello.incarnation <= term.incarnation())) {
    return Refused{"the job went on without this member", Refusal::kEvicted};
  }
  return std::nullopt;
}

}  // namespace mayfly::elastic
