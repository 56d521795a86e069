#include "elastic/core/admission.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr Incarnation kIncarnationMax{1'000'000'000};  // far from where ids would overflow

/// No coordinator assigns so many ids. If one continued after such an id, it would soon have none
/// left.
bool is_at_the_end_of_its_range(std::uint64_t id) {
  return (id - 1) % kIdsPerIncarnation >= kIdsPerIncarnation / 2;
}

bool is_complete(const Membership& membership) {
  return membership.view() && membership.missing().empty();
}

Step commit(Resume& report, Step committed) {
  report.committed = std::max(report.committed, committed);
  report.is_active = report.is_active || committed > report.view->committed;
  return committed;
}

}  // namespace

bool has_part(const Resume& resume) {
  return resume.phase == ResumePhase::kRunning || resume.phase == ResumePhase::kStopped;
}

bool makes_sense(MemberId id, const Resume& resume) {
  const bool is_stopped = resume.phase == ResumePhase::kStopped;
  if ((has_part(resume) && !resume.view) || (is_stopped && !resume.last) ||
      (resume.phase == ResumePhase::kRunning && resume.last) || (resume.last && !resume.view)) {
    return false;
  }
  return !resume.view || (resume.view->id != ViewId{} && member_of(*resume.view, id) != nullptr &&
                          !is_at_the_end_of_its_range(value(resume.view->id)) &&
                          incarnation_of(resume.view->id) <= resume.incarnation &&
                          (!resume.last || resume.last->view == resume.view->id));
}

bool is_impossible(const Hello& hello) {
  const auto is_nobodys = [&hello](std::uint64_t id) {
    return id != 0 &&
           (incarnation_of(ViewId{id}) > hello.incarnation || is_at_the_end_of_its_range(id));
  };
  return hello.job == 0 || hello.incarnation > kIncarnationMax || is_nobodys(value(hello.member)) ||
         is_nobodys(value(hello.view));
}

bool holds_newest_state(MemberId id, const Resume& report, const Peers& peers, ViewId last_view) {
  const bool is_sound = report.phase == ResumePhase::kStopped &&
                        report.last->dispute == Dispute::kNone && !report.last->contradicts_itself;
  if (!is_sound) {
    return false;
  }
  const auto has_more = [&](Step committed, ViewId view) {
    const bool is_other_state = view > report.view->id || view == ViewId{};
    return committed > report.committed || (committed == report.committed && is_other_state);
  };
  return std::ranges::none_of(peers, [&](const Peers::value_type& entry) {
    const auto& [other, peer] = entry;
    if (other == id) {
      return false;
    }
    if (peer.resume) {
      const ViewId view = peer.resume->view ? peer.resume->view->id : ViewId{};
      const bool is_at_work = peer.resume->phase == ResumePhase::kRunning && view == last_view;
      // The member still trains, so its last committed step is not known yet.
      return is_at_work || has_more(peer.resume->committed, view);
    }
    return peer.phase() == Peer::Phase::kActive ||
           (peer.is_candidate() && has_more(peer.committed, peer.stopped.view));
  });
}

std::optional<Step> amend(Resume& report, const Message& message) {
  const auto is_of_view = [&report](ViewId view) {
    return has_part(report) && report.view->id == view;
  };
  if (const auto* stopped = std::get_if<Stopped>(&message); stopped && is_of_view(stopped->view)) {
    report.phase = ResumePhase::kStopped;
    report.last = *stopped;
    return commit(report, stopped->committed);
  }
  if (const auto* step = std::get_if<Progress>(&message); step && is_of_view(step->view)) {
    report.microbatch_ms = step->microbatch_ms > 0 ? step->microbatch_ms : report.microbatch_ms;
    return commit(report, step->committed);
  }
  if (const auto* done = std::get_if<CaughtUp>(&message); done && is_of_view(done->view)) {
    report.has_caught_up = true;
  } else if (const auto* ready = std::get_if<Ready>(&message);
             ready && report.phase == ResumePhase::kLoading) {
    report.phase = ResumePhase::kReady;
    report.committed = ready->committed;
    report.state_bytes = ready->state_bytes;
  } else if (const auto* leave = std::get_if<LeaveRequest>(&message)) {
    report.is_leaving = true;
    report.leave_reason = leave->reason;
  }
  return std::nullopt;
}

bool all_run_on(const Membership& membership) {
  if (!is_complete(membership)) {
    return false;
  }
  const View& view = *membership.view();
  return std::ranges::all_of(view.members, [&](const ViewMember& member) {
    const Resume& report = *membership.at(member.id).resume;
    return report.phase == ResumePhase::kRunning && report.view->id == view.id;
  });
}

bool only_finished_returned(const Membership& membership) {
  std::size_t finished = 0;
  for (const auto& [id, peer] : membership.peers()) {
    if (peer.resume && has_part(*peer.resume)) {
      if (!peer.resume->last || !peer.resume->last->finished) {
        return false;
      }
      ++finished;
    }
  }
  return finished > 0;
}

ReturnWatch::ReturnWatch(const CoordinatorOptions& options)
    : resume_timeout_(options.resume_timeout),
      abandon_timeout_(options.quorum ? std::nullopt : std::optional(options.abandon_timeout)) {}

void ReturnWatch::begin(Instant now) {
  since_ = now;
  first_return_.reset();
}

Instant ReturnWatch::first_return() const {
  ENSURE(first_return_, "no member has returned");
  return *first_return_;
}

bool ReturnWatch::is_due(const Membership& membership, bool in_haste, Instant now) const {
  ENSURE(since_, "members are waited for from begin() on");
  if (is_complete(membership)) {
    return true;
  }
  if (first_return_) {
    return now - *first_return_ >= resume_timeout_;
  }
  return abandon_timeout_ && now - *since_ >= (in_haste ? resume_timeout_ : *abandon_timeout_);
}

bool ReturnWatch::is_over(const Membership& membership, Instant now) const {
  ENSURE(since_, "members are waited for from begin() on");
  return is_complete(membership) || now - first_return_.value_or(*since_) >= resume_timeout_;
}

void ReturnWatch::extend_deadlines(Duration pause, Instant now) {
  for (std::optional<Instant>* since : {&since_, &first_return_}) {
    if (*since) {
      *since = std::min(**since + pause, now);
    }
  }
}

std::optional<std::string> reason_to_refuse(const Hello& hello, JobPhase phase, const Term& term,
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
  if (here >= kMembersMax) {
    return "the job has all the workers it may have (" + std::to_string(kMembersMax) + ")";
  }
  return std::nullopt;
}

std::optional<Refused> reason_to_turn_away(const Hello& hello, JobPhase phase, const Term& term,
                                           const Membership& membership) {
  // First, because that job goes on, whatever the settings of this one are: a final refusal would
  // end a member that trains, and its state would be lost.
  if (term.is_of_another_job(hello)) {
    return Refused{"this coordinator leads another job", Refusal::kElsewhere};
  }
  if (auto reason = reason_to_refuse(hello, phase, term, membership)) {
    // A standby that does not know its job cannot know whether the member is of it.
    return Refused{std::move(*reason), term.job() == 0 ? Refusal::kElsewhere : Refusal::kFinal};
  }
  if (is_impossible(hello)) {
    return Refused{"no job has such a member", Refusal::kFinal};
  }
  if (hello.joins_again) {  // with its former id, because a quorum may need its vote
    return std::nullopt;
  }
  // A member that has entered no view yet can always wait for the next one. If a member knows a
  // later view than this coordinator, this coordinator must not judge it.
  const std::optional<View>& last = membership.view();
  const bool is_news = hello.view > (last ? last->id : ViewId{});
  const bool is_over = phase == JobPhase::kRunning || !membership.is_in_view(hello.member);
  const bool is_late =
      phase != JobPhase::kResuming && hello.view != ViewId{} && !is_news && is_over;
  const bool is_fenced = membership.is_fenced(hello.member) && !is_news;
  if (is_fenced || (is_late && hello.incarnation <= term.incarnation())) {
    return Refused{"the job continued without this member", Refusal::kEvicted};
  }
  return std::nullopt;
}

}  // namespace mayfly::elastic
