#include "elastic/core/member.hpp"

#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr const char* kCoordinatorGone = "the coordinator is gone";

}  // namespace

Member::Member(const Welcome& welcome)
    : self_(welcome.member),
      incarnation_(welcome.incarnation),
      author_(welcome.author),
      job_(welcome.job),
      has_quorum_(welcome.quorum) {}

Member::Member(Former former)
    : self_(former.id),
      former_(std::move(former)),
      incarnation_(former_->incarnation),
      author_(former_->author),
      job_(former_->job),
      has_quorum_(true),
      is_connected_(false) {}

std::vector<MemberEffect> Member::handle(const MemberEvent& event) {
  if (phase_ == Phase::kGone) {
    return {};
  }
  Effects effects = std::visit([this](const auto& e) { return on(e); }, event);
  check_invariants();
  ENSURE(phase_ != Phase::kGone || std::holds_alternative<member_effect::Leave>(effects.back()),
         "a member that is gone has been told to leave, and nothing follows that");
  return effects;
}

/// Invariants between any two events, in any order of events.
void Member::check_invariants() const {
  const bool runs = phase_ == Phase::kRunning || phase_ == Phase::kStopping;
  ENSURE(!runs || view_.has_value(), "a trainer that runs has been given a view");
  ENSURE(!runs || !last_, "a view is reported when its trainer has stopped, not before");
  ENSURE(!runs || !former_, "a running member has no former membership any more");
  ENSURE(!last_ || last_->view == view_->id, "the report is about the newest view");
  ENSURE(phase_ != Phase::kWaiting || view_.has_value() == last_.has_value(),
         "a member that waits has reported the view it was in, if it was in one");
  ENSURE(phase_ != Phase::kLoading || !view_, "no view is run before the member has loaded");
  ENSURE(view_ || (!is_active_ && !has_caught_up_), "steps are committed in views");
  ENSURE(!is_given_up_ || !is_connected_, "a coordinator that is connected is not given up");
}

void Member::introduce(Hello& hello) const {
  hello.member = self_;
  hello.job = job_;
  hello.incarnation = incarnation_;
  hello.author = author_;
  const std::optional<View>& entered = former_ ? former_->view : view_;
  hello.view = entered ? entered->id : ViewId{};
  hello.joins_again = former_.has_value();
}

/// The data that the next machine of this process must start from: incarnations that this member
/// has accepted bind the process, whether or not it joins again.
Former Member::former() const {
  Former left = former_.value_or(Former{self_, 0, {}, 0, view_, is_active_, last_});
  left.job = job_;
  left.incarnation = incarnation_;
  left.author = author_;
  return left;
}

bool Member::needs_coordinator() const {
  return phase_ == Phase::kLoading || phase_ == Phase::kWaiting;
}

bool Member::in_view(ViewId view) const {
  return (phase_ == Phase::kRunning || phase_ == Phase::kStopping) && view == view_->id;
}

/// Whether this member holds a state that the job has trained, in this view or an earlier one. An
/// observer reports the steps of the view, which are not in a state of its own.
bool Member::has_trained_state() const {
  if (!view_ || committed_ == Step{} || committed_ < view_->committed) {
    return false;
  }
  return !in_view(view_->id) || has_caught_up_ || !member_of(*view_, self_)->is_observer();
}

Member::Effects Member::say(Message message) const {
  if (!is_connected_) {
    return {};
  }
  return {member_effect::Send{std::move(message)}};
}

// --- the coordinator

Member::Effects Member::on(const member_event::Received& event) {
  if (const auto* welcome = std::get_if<Welcome>(&event.message)) {
    return accept(*welcome);
  }
  if (const auto* refused = std::get_if<Refused>(&event.message)) {
    return turn_away(*refused);
  }
  return is_connected_ ? obey(event.message) : Effects{};
}

Member::Effects Member::obey(const Message& message) {
  if (const auto* lack = std::get_if<NoQuorum>(&message)) {
    return {member_effect::TryElsewhere{lack->skip}};
  }
  if (const auto* asked = std::get_if<Stop>(&message)) {
    return stop(*asked);
  }
  if (const auto* announced = std::get_if<NewView>(&message)) {
    return start(announced->view);
  }
  if (const auto* changed = std::get_if<NewViewDelta>(&message)) {
    return change(changed->delta);
  }
  if (const auto* dismissed = std::get_if<Dismiss>(&message)) {
    return dismiss(*dismissed);
  }
  return {};
}

bool Member::may_accept(const Welcome& welcome) const {
  const bool is_same_job = job_ == 0 || welcome.job == 0 || welcome.job == job_;
  const bool is_same_author = welcome.author == author_;
  const bool is_newer = welcome.incarnation > incarnation_;
  return welcome.member == self_ && is_same_job &&
         (is_newer || (welcome.incarnation == incarnation_ && is_same_author));
}

Member::Effects Member::accept(const Welcome& welcome) {
  if (!may_accept(welcome)) {
    return {member_effect::TryElsewhere{}};
  }
  Effects effects;
  if (welcome.incarnation > incarnation_) {
    effects.emplace_back(member_effect::Adopt{welcome.incarnation, welcome.author});
  }
  ENSURE(welcome.incarnation >= incarnation_, "an older coordinator is never obeyed again");
  incarnation_ = welcome.incarnation;
  author_ = welcome.author;
  job_ = welcome.job != 0 ? welcome.job : job_;
  is_connected_ = true;
  is_given_up_ = false;
  if (welcome.resume) {
    effects.emplace_back(member_effect::Send{resume()});
  }
  return effects;
}

Member::Effects Member::turn_away(const Refused& refused) {
  switch (refused.refusal) {
    case Refusal::kElsewhere: return {member_effect::TryElsewhere{}};
    case Refusal::kFinal:  // perhaps because the job ended while this member was disconnected
      return leave(is_finished() ? DismissReason::kJobDone : DismissReason::kJobFailed,
                   refused.reason);
    case Refusal::kEvicted: return dismiss({DismissReason::kEvicted, false, refused.reason, true});
  }
  UNREACHABLE("every refusal has a meaning");
}

Resume Member::resume() const {
  Resume report;
  report.incarnation = incarnation_;
  switch (phase_) {
    case Phase::kLoading: report.phase = ResumePhase::kLoading; break;
    case Phase::kWaiting: report.phase = view_ ? ResumePhase::kStopped : ResumePhase::kReady; break;
    case Phase::kRunning:
    case Phase::kStopping: report.phase = ResumePhase::kRunning; break;
    case Phase::kGone: UNREACHABLE("a member that is gone says nothing");
  }
  report.committed = committed_;
  report.is_active = is_active_;
  report.view = view_;
  report.last = last_;
  report.state_bytes = state_bytes_;
  report.has_caught_up = has_caught_up_;
  report.held_before = phase_ == Phase::kWaiting ? MicrobatchSet{} : held_before_;
  report.microbatch_ms = microbatch_ms_;
  report.is_leaving = leave_reason_.has_value();
  report.leave_reason = leave_reason_.value_or("");
  if (former_) {
    report.is_active = former_->is_active;
    report.view = former_->view;
    report.last = former_->last;
  }
  return report;
}

Member::Effects Member::on(const member_event::CoordinatorLost& /*event*/) {
  is_connected_ = false;
  return {};
}

Member::Effects Member::on(const member_event::CoordinatorGivenUp& /*event*/) {
  if (is_connected_) {
    return {};
  }
  is_given_up_ = true;
  if (!needs_coordinator()) {
    return {};
  }
  return leave(is_finished() ? DismissReason::kJobDone : DismissReason::kJobFailed,
               kCoordinatorGone);
}

// --- views

Member::Effects Member::stop(const Stop& stop) {
  if (phase_ != Phase::kRunning || stop.view != view_->id) {
    return {};
  }
  if (stop.at_boundary) {
    return {member_effect::AskForBoundary{stop.view, stop.stays && !leave_reason_}};
  }
  phase_ = Phase::kStopping;
  return {member_effect::AbortGroup{stop.view}};
}

Member::Effects Member::start(const View& view) {
  const std::optional<View>& newest = former_ ? former_->view : view_;
  const bool is_news = phase_ == Phase::kWaiting && (!newest || view.id > newest->id);
  if (!is_news || incarnation_of(view.id) != incarnation_ || member_of(view, self_) == nullptr) {
    return {};
  }
  phase_ = Phase::kRunning;
  former_.reset();
  view_ = view;
  is_active_ = has_caught_up_ = false;
  held_before_ = last_ ? last_->held : MicrobatchSet{};
  last_.reset();
  ENSURE(!view.members.empty() && value(view.source) < view.members.size(),
         "some member holds the state that a view begins with");
  return {member_effect::RunView{view}};
}

Member::Effects Member::change(const ViewDelta& delta) {
  const Result<View> view = view_ ? apply_delta(*view_, delta) : Error{Errc::kCorrupt, "no view"};
  return view.ok() ? start(view.value()) : say(ViewWanted{delta.id});
}

Member::Effects Member::dismiss(const Dismiss& dismiss) {
  const bool keeps_id = dismiss.may_rejoin && has_quorum_;
  ENSURE(phase_ != Phase::kGone, "a member leaves once");
  Effects effects = keeps_id ? Effects{} : say(Left{incarnation_});
  if (phase_ == Phase::kRunning) {
    effects.emplace_back(member_effect::AbortGroup{view_->id});
  }
  phase_ = Phase::kGone;
  effects.emplace_back(member_effect::Leave{dismiss.reason, dismiss.write_checkpoint,
                                            dismiss.detail, dismiss.may_rejoin,
                                            keeps_id ? std::optional(former()) : std::nullopt});
  return effects;
}

/// Leaves without having been dismissed: no coordinator can be reached, or it refuses this member
/// for good. If none can be reached, and this member has a state that the job has trained, it saves
/// that state on its own host.
Member::Effects Member::leave(DismissReason reason, std::string detail) {
  const bool is_alone_with_it =
      is_given_up_ && has_trained_state() && reason != DismissReason::kJobDone;
  return dismiss({reason, is_alone_with_it, std::move(detail), false});
}

// --- the worker

Member::Effects Member::on(const member_event::Loaded& event) {
  if (phase_ != Phase::kLoading) {
    return {};
  }
  phase_ = Phase::kWaiting;
  committed_ = event.committed;
  state_bytes_ = event.state_bytes;
  return say(Ready{event.committed, event.state_bytes});
}

Member::Effects Member::on(const member_event::TrainerStopped& event) {
  const Stopped& report = event.report;
  if (!in_view(report.view)) {
    return {};
  }
  phase_ = Phase::kWaiting;
  committed_ = report.committed;
  is_active_ = is_active_ || report.committed > view_->committed;
  last_ = report;
  if (is_given_up_) {
    return leave(report.finished ? DismissReason::kJobDone : DismissReason::kJobFailed,
                 kCoordinatorGone);
  }
  return say(report);
}

Member::Effects Member::on(const member_event::Progressed& event) {
  const Progress& report = event.report;
  if (!in_view(report.view)) {
    return {};
  }
  committed_ = report.committed;
  is_active_ = is_active_ || report.committed > view_->committed;
  microbatch_ms_ = report.microbatch_ms > 0 ? report.microbatch_ms : microbatch_ms_;
  return say(report);
}

Member::Effects Member::on(const member_event::GroupFormed& event) {
  if (phase_ != Phase::kRunning || event.view != view_->id) {
    return {};
  }
  return say(Formed{event.view});
}

Member::Effects Member::on(const member_event::StateSynced& event) {
  if (phase_ != Phase::kRunning || event.view != view_->id) {
    return {};
  }
  return say(Synced{event.view});
}

Member::Effects Member::on(const member_event::StateCaughtUp& event) {
  if (phase_ != Phase::kRunning || event.view != view_->id) {
    return {};
  }
  committed_ = event.committed;
  has_caught_up_ = true;
  return say(CaughtUp{event.view, event.committed});
}

Member::Effects Member::on(const member_event::LeaveAsked& event) {
  if (is_given_up_) {
    return leave(DismissReason::kDrained, event.reason);
  }
  if (leave_reason_) {
    return {};
  }
  leave_reason_ = event.reason;
  return say(LeaveRequest{event.reason});
}

}  // namespace mayfly::elastic
