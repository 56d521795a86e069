#include "elastic/core/view_change.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

bool is_unplanned(const Recovery& change) {
  return change.cause == ChangeCause::kLost || change.cause == ChangeCause::kGroupFailed ||
         change.cause == ChangeCause::kCorrupted;
}

}  // namespace

const char* name_of(ChangeCause cause) {
  switch (cause) {
    case ChangeCause::kLost: return "lost";
    case ChangeCause::kGroupFailed: return "group_failed";
    case ChangeCause::kCorrupted: return "corrupted";
    case ChangeCause::kJoin: return "join";
    case ChangeCause::kPromote: return "promote";
    case ChangeCause::kLeave: return "leave";
    case ChangeCause::kRebalance: return "rebalance";
    case ChangeCause::kStop: return "stop";
    case ChangeCause::kPause: return "pause";
    case ChangeCause::kFinish: return "finish";
  }
  UNREACHABLE("every cause has a name");
}

ViewChange::StopOrder ViewChange::begin(Instant now, ViewId old_view, bool immediate,
                                        ChangeCause cause, std::vector<MemberId> members) {
  ENSURE(old_view != ViewId{}, "only a published view can end");
  stop_is_immediate_ = false;
  stop_deadline_.reset();
  first_to_break_.reset();
  change_ = Recovery{};
  change_->cause = cause;
  change_->members = std::move(members);
  change_->old_view = old_view;
  change_->detected = change_->told = now;
  if (is_unplanned(*change_)) {
    if (settling_ && is_unplanned(*settling_)) {  // both become one long recovery
      change_->detected = settling_->detected;
      change_->old_view = settling_->old_view;
      change_->detail = settling_->detail;
      change_->members.insert(change_->members.begin(), settling_->members.begin(),
                              settling_->members.end());
    }
    settling_.reset();
  }
  if (immediate) {
    return stop_now(now, cause);
  }
  const bool they_stop_themselves = cause == ChangeCause::kFinish || is_unplanned(*change_);
  return they_stop_themselves ? StopOrder::kNone : StopOrder::kAtBoundary;
}

ViewChange::StopOrder ViewChange::add(Instant now, bool immediate, ChangeCause cause,
                                      std::vector<MemberId> members) {
  ENSURE(change_, "a view is stopped as part of a change");
  change_->members.insert(change_->members.end(), members.begin(), members.end());
  return immediate ? stop_now(now, cause) : StopOrder::kNone;
}

ViewChange::StopOrder ViewChange::stop_now(Instant now, ChangeCause cause) {
  if (stop_is_immediate_) {
    if (cause == ChangeCause::kLost) {
      if (!is_unplanned(*change_)) {  // only the abort was insisted on: the recovery begins here
        change_->detected = change_->told = now;
      }
      change_->cause = cause;
    }
    return StopOrder::kNone;
  }
  if (!is_unplanned(*change_)) {
    change_->detected = now;
  }
  change_->cause = cause;
  change_->told = now;
  stop_is_immediate_ = true;
  stop_deadline_ = now + stop_timeout_;
  return StopOrder::kAtOnce;
}

void ViewChange::insist(Instant now) {
  ENSURE(change_ && !stop_is_immediate_,
         "members that were told to stop at once are not told again");
  stop_is_immediate_ = true;
  stop_deadline_ = now + stop_timeout_;
}

void ViewChange::broke_first(MemberId member, const std::string& detail) {
  ENSURE(change_ && !first_to_break_, "a group breaks for the first time once");
  first_to_break_ = member;
  change_->detail = "member " + std::to_string(value(member)) + ": " + detail;
}

void ViewChange::await_disputes(Instant now, Dispute dispute) {
  ENSURE(change_ && dispute != Dispute::kNone, "a dispute ends a view");
  if (stop_is_immediate_) {
    return;
  }
  if (change_->cause != ChangeCause::kGroupFailed) {
    change_->cause = ChangeCause::kGroupFailed;
    change_->detected = change_->told = now;
  }
  // A member may first have to finish the microbatch that it is computing before it can report.
  const Instant deadline = now + (dispute == Dispute::kState ? dispute_timeout_ : stop_timeout_);
  stop_deadline_ = std::min(stop_deadline_.value_or(deadline), deadline);
}

void ViewChange::await_others(Instant now) {
  ENSURE(change_, "members stop as part of a change");
  if (!stop_deadline_) {
    stop_deadline_ = now + stop_timeout_;
  }
}

void ViewChange::explain(const std::string& detail) {
  ENSURE(change_, "only a change has a reason");
  change_->detail = detail;
}

void ViewChange::explain_if_open(const std::string& detail) {
  ENSURE(change_, "only a change has a reason");
  change_->detail = change_->detail.empty() ? detail : change_->detail;
}

void ViewChange::found_corruption() {
  ENSURE(change_, "members are expelled as part of a change");
  change_->cause = ChangeCause::kCorrupted;
}

void ViewChange::extend_deadlines(Duration pause, Instant now) {
  if (stop_deadline_) {
    const Instant latest = std::max(*stop_deadline_, now + stop_timeout_);
    stop_deadline_ = std::min(*stop_deadline_ + pause, latest);
  }
}

void ViewChange::forget_all() {
  change_.reset();
  settling_.reset();
  stop_deadline_.reset();
  first_to_break_.reset();
}

std::optional<MemberId> ViewChange::first_to_break() const {
  const bool broke = change_ && change_->cause == ChangeCause::kGroupFailed;
  return broke ? first_to_break_ : std::nullopt;
}

void ViewChange::publish(Instant now, const View& next, const std::vector<MemberId>& newcomers,
                         std::uint32_t redone_microbatches) {
  settling_.reset();
  has_first_commit_ = false;
  // Even if the job is to pause or stop, the members may need one more view, in which it ends.
  if (!change_ || change_->cause == ChangeCause::kPause || change_->cause == ChangeCause::kStop) {
    change_.reset();
    return;
  }
  if (change_->cause == ChangeCause::kFinish) {
    change_->cause = ChangeCause::kGroupFailed;  // some finished, some did not
  }
  for (const MemberId id : newcomers) {
    auto& members = change_->members;
    if (std::ranges::find(members, id) == members.end()) {
      members.push_back(id);
    }
  }
  ENSURE(change_->detected <= now && change_->told <= now, "a view ends before the next begins");
  change_->new_view = next.id;
  change_->committed = next.committed;
  change_->stopped = now;
  change_->redone_microbatches = redone_microbatches;
  settling_ = std::exchange(change_, std::nullopt);
}

void ViewChange::formed(Instant now) {
  if (settling_) {
    settling_->formed = now;
  }
}

void ViewChange::synced(Instant now) {
  if (settling_) {
    settling_->synced = now;
  }
}

void ViewChange::committed(Instant now) {
  if (settling_ && !std::exchange(has_first_commit_, true)) {
    settling_->step = now;
  }
}

std::optional<Recovery> ViewChange::take_settled(bool all_have_started) {
  if (!settling_ || !has_first_commit_ || !all_have_started) {
    return std::nullopt;
  }
  ENSURE(settling_->stopped <= settling_->step, "a view is published before its first step");
  return std::exchange(settling_, std::nullopt);
}

void ViewChange::check_invariants() const {
  if (change_) {
    ENSURE(change_->old_view != ViewId{} && change_->new_view == ViewId{},
           "a change leads from a published view to one that is not published yet");
    ENSURE(change_->detected <= change_->told, "members are told after the cause is detected");
    ENSURE(!stop_is_immediate_ || stop_deadline_, "an order to stop at once has a deadline");
  }
  if (settling_) {
    ENSURE(settling_->old_view < settling_->new_view, "the view that settles is a later one");
    ENSURE(settling_->detected <= settling_->told && settling_->told <= settling_->stopped,
           "members are told, and stop, before the next view is published");
  }
}

}  // namespace mayfly::elastic
