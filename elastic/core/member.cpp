#include "elastic/core/member.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr const char* kCoordinatorGone = "the coordinator is gone";

bool contains(const View& view, MemberId member) {
  return std::any_of(view.members.begin(), view.members.end(),
                     [member](const ViewMember& m) { return m.id == member; });
}

}  // namespace

std::vector<MemberEffect> Member::handle(const MemberEvent& event) {
  if (phase_ == Phase::kGone) {
    return {};
  }
  return std::visit([this](const auto& e) { return on(e); }, event);
}

bool Member::in_view(ViewId view) const {
  return (phase_ == Phase::kRunning || phase_ == Phase::kStopping) && view == view_;
}

Member::Effects Member::on(const member_event::Received& event) {
  if (const auto* asked = std::get_if<Stop>(&event.message)) {
    return stop(*asked);
  }
  if (const auto* announced = std::get_if<NewView>(&event.message)) {
    return start(announced->view);
  }
  if (const auto* dismissed = std::get_if<Dismiss>(&event.message)) {
    return dismiss(*dismissed);
  }
  return {};
}

Member::Effects Member::stop(const Stop& stop) {
  if (phase_ != Phase::kRunning || stop.view != view_) {
    return {};
  }
  if (stop.at_boundary) {
    return {member_effect::AskForBoundary{view_}};
  }
  phase_ = Phase::kStopping;
  return {member_effect::AbortGroup{view_}};
}

Member::Effects Member::start(const View& view) {
  const bool is_news = phase_ == Phase::kWaiting && value(view.id) > value(view_);
  if (!is_news || !contains(view, self_)) {
    return {};
  }
  phase_ = Phase::kRunning;
  view_ = view.id;
  return {member_effect::RunView{view}};
}

Member::Effects Member::dismiss(const Dismiss& dismiss) {
  return leave(dismiss.reason, dismiss.write_checkpoint, dismiss.detail);
}

Member::Effects Member::leave(DismissReason reason, bool write_checkpoint, std::string detail) {
  ENSURE(phase_ != Phase::kGone, "a member leaves once");
  Effects effects;
  if (phase_ == Phase::kRunning) {
    effects.push_back(member_effect::AbortGroup{view_});
  }
  phase_ = Phase::kGone;
  effects.push_back(member_effect::Leave{reason, write_checkpoint, std::move(detail)});
  return effects;
}

Member::Effects Member::on(const member_event::Loaded& event) {
  if (phase_ != Phase::kLoading) {
    return {};
  }
  phase_ = Phase::kWaiting;
  return {member_effect::Send{Ready{event.committed, event.state_bytes}}};
}

Member::Effects Member::on(const member_event::TrainerStopped& event) {
  if (!in_view(event.view)) {
    return {};
  }
  phase_ = Phase::kWaiting;
  if (coordinator_lost_) {
    return event.finished ? leave(DismissReason::kJobDone, false, kCoordinatorGone)
                          : leave(DismissReason::kJobFailed, false, kCoordinatorGone);
  }
  return {member_effect::Send{Stopped{event.view, event.committed, event.held, event.finished,
                                      event.failed, event.culprit, event.detail, event.observed}}};
}

Member::Effects Member::on(const member_event::GroupFormed& event) {
  if (phase_ != Phase::kRunning || event.view != view_) {
    return {};
  }
  return {member_effect::Send{Formed{event.view}}};
}

Member::Effects Member::on(const member_event::StateSynced& event) {
  if (phase_ != Phase::kRunning || event.view != view_) {
    return {};
  }
  return {member_effect::Send{Synced{event.view}}};
}

Member::Effects Member::on(const member_event::StateCaughtUp& event) {
  if (phase_ != Phase::kRunning || event.view != view_) {
    return {};
  }
  return {member_effect::Send{CaughtUp{event.view, event.committed}}};
}

Member::Effects Member::on(const member_event::LeaveAsked& event) {
  if (coordinator_lost_) {
    return leave(DismissReason::kDrained, false, event.reason);
  }
  if (std::exchange(leave_asked_, true)) {
    return {};
  }
  return {member_effect::Send{LeaveRequest{event.reason}}};
}

Member::Effects Member::on(const member_event::CoordinatorLost& /*event*/) {
  coordinator_lost_ = true;
  if (phase_ == Phase::kRunning) {
    return {};
  }
  return leave(DismissReason::kJobFailed, false, kCoordinatorGone);
}

}  // namespace mayfly::elastic
