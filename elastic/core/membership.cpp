#include "elastic/core/membership.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "elastic/core/admission.hpp"

namespace mayfly::elastic {
namespace {

/// The member has no part in the last view, but may be in the next one.
void place_beside(Peer& peer, Instant now) {
  peer.observes = ViewId{};
  peer.caught_up.reset();
  peer.donors.clear();
  Join& join = peer.join.emplace();
  join.connected = join.ready = now;
}

/// `report` is the report of a member that has a part in this coordinator's last view.
void place_within(Peer& peer, MemberId id, const Resume& report, Instant now) {
  if (const ViewMember* self = member_of(*report.view, id)) {
    peer.observes = self->observes;
  }
  peer.caught_up = report.has_caught_up ? std::optional(now) : std::nullopt;
  peer.donors.clear();  // unknown; an observer that lacks the state begins again
  peer.formed = peer.synced = true;
  // An observer may be one step behind. While it runs, it reports the view's steps, not its own.
  peer.returned_behind = peer.lacks_state() || next(report.committed) < report.view->committed;
  peer.may_lack_newest_state = peer.may_lack_newest_state || peer.returned_behind;
  if (report.phase == ResumePhase::kRunning) {
    peer.stopped.held = report.held_before;
  } else {
    peer.stopped = *report.last;
  }
}

/// The first ready worker with the newest state, if no member that has stopped and none of `voters`
/// has that state: it returned after the job had continued without it, and the others were lost.
std::optional<MemberId> needed_spare(const Candidates& candidates,
                                     const std::set<MemberId>& voters) {
  Step newest{};
  std::optional<MemberId> needed;
  for (const auto& [id, peer] : candidates) {
    const bool has_place = peer->phase() == Peer::Phase::kStopped || voters.contains(id);
    if (peer->committed > newest) {
      newest = peer->committed;
      needed = has_place ? std::nullopt : std::optional(id);
    } else if (peer->committed == newest && has_place) {
      needed.reset();
    }
  }
  return needed;
}

}  // namespace

Membership::Membership(const CoordinatorOptions& options)
    : counts_as_worker_(options.counts_as_worker),
      view_max_(options.view_max),
      steps_need_all_members_(options.steps_need_all_members),
      first_step_(options.first_step),
      speed_sample_(options.speed_sample) {}

Peer& Membership::active_peer(MemberId id) {
  Peer& found = peers_.at(id);
  ENSURE(view_ && found.phase() == Peer::Phase::kActive, "only active members take part in a view");
  return found;
}

bool Membership::is_active_in(MemberId id, ViewId view) const {
  const Peer* found = find(id);
  return found != nullptr && found->phase() == Peer::Phase::kActive && view == view_->id;
}

bool Membership::takes_part_in(MemberId id, ViewId view) const {
  const Peer* found = find(id);
  if (found == nullptr || !view_ || view_->id != view) {
    return false;
  }
  const bool has_returned = found->phase() == Peer::Phase::kReturning && found->resume &&
                            found->resume->view && found->resume->view->id == view;
  return found->phase() == Peer::Phase::kActive || found->phase() == Peer::Phase::kStopped ||
         has_returned;
}

std::vector<MemberId> Membership::active() const {
  std::vector<MemberId> active;
  for (const auto& [id, peer] : peers()) {
    if (peer.phase() == Peer::Phase::kActive) {
      active.push_back(id);
    }
  }
  return active;
}

Candidates Membership::candidates() const {
  Candidates ready;
  for (const auto& [id, peer] : peers()) {
    if (peer.is_candidate()) {
      ready.emplace_back(id, &peer);
    }
  }
  return ready;
}

Candidates Membership::next_members(const std::set<MemberId>& voters) const {
  Candidates members = candidates();
  std::set<MemberId> placed = voters;
  if (const auto needed = needed_spare(members, voters); needed && steps_need_all_members_) {
    placed.insert(*needed);
  }
  const auto is_spare = [&placed](const auto& candidate) {
    return candidate.second->phase() == Peer::Phase::kReady && !placed.contains(candidate.first);
  };
  const auto taken =
      static_cast<std::size_t>(std::ranges::count_if(members, [&is_spare](const auto& candidate) {
        return !is_spare(candidate) && !candidate.second->is_leaving();
      }));
  std::size_t room = view_max_ - std::min<std::size_t>(taken, view_max_);
  std::erase_if(members, [&](const auto& candidate) {
    if (!is_spare(candidate)) {
      return false;
    }
    const bool has_room = room > 0;
    room -= has_room ? 1 : 0;
    return !has_room;
  });
  return members;
}

std::size_t Membership::free_places(Peer::Phase of_members) const {
  const auto taken = static_cast<std::size_t>(
      std::ranges::count_if(peers(), [of_members](const Peers::value_type& entry) {
        return entry.second.phase() == of_members && !entry.second.is_leaving();
      }));
  return view_max_ - std::min<std::size_t>(taken, view_max_);
}

bool Membership::may_leave(MemberId id, bool is_running) const {
  const Peer& peer = at(id);
  ENSURE(peer.is_candidate(), "others leave as a view ends, or have nothing to lose");
  const bool holds_no_state_of_the_job =
      peer.phase() == Peer::Phase::kReady && (!view_ || is_running);
  if (holds_no_state_of_the_job) {
    return true;
  }
  // The only holder of the last committed step stays for one more view, so that no commit is
  // undone. With parameter servers the last worker stays until another one has joined.
  const Candidates others = candidates();
  return std::ranges::any_of(others, [&](const auto& other) {
    const bool holds_as_much =
        counts_as_worker_ ? other.second->is_worker : other.second->committed >= peer.committed;
    return other.first != id && !other.second->is_leaving() && holds_as_much;
  });
}

bool Membership::all_have_started() const {
  ENSURE(view_, "only a published view is started");
  return started_ == view_->members.size();
}

/// Some member has a state of the job, or will soon have one. Takes constant time while a view
/// runs.
bool Membership::may_hold_state() const {
  using enum Peer::Phase;
  if (!view_) {
    return false;
  }
  return count(kActive) + count(kStopped) + count(kReturning) + peers_.leavers() > 0 ||
         std::ranges::any_of(peers(), [this](const auto& entry) {
           return entry.second.phase() != kDismissed && entry.second.committed > first_step_;
         });
}

Peer& Membership::add(MemberId id, const Hello& hello, Peer::Phase phase) {
  Peer& added = peers_.add(id, phase);
  added.is_worker = !counts_as_worker_ || counts_as_worker_(hello.address);
  added.host = hello.host;
  added.pid = hello.pid;
  added.address = hello.address;
  added.server = hello.server;
  added.cores = hello.cores;
  return added;
}

void Membership::connect(MemberId id, const Hello& hello, Instant now) {
  Peer& fresh = add(id, hello, Peer::Phase::kLoading);
  fresh.join.emplace().connected = now;
  fresh.may_lack_newest_state = may_hold_state();
}

void Membership::wants_to_leave(MemberId id, const std::string& reason) {
  peers_.wants_to_leave(peers_.at(id), reason);
}

void Membership::dismiss(MemberId id) {
  Peer& dismissed = peers_.at(id);
  ENSURE(dismissed.phase() != Peer::Phase::kDismissed, "a member is dismissed once");
  peers_.enter_phase(dismissed, Peer::Phase::kDismissed);
}

void Membership::become_ready(MemberId id, const Ready& ready, Instant now) {
  Peer& loader = peers_.at(id);
  if (loader.phase() != Peer::Phase::kLoading) {
    return;
  }
  peers_.enter_phase(loader, Peer::Phase::kReady);
  loader.committed = ready.committed;
  loader.loaded = ready.committed;
  loader.state_bytes = ready.state_bytes;
  loader.join->ready = now;
}

void Membership::stopped(MemberId id, const Stopped& stopped) {
  Peer& member = active_peer(id);
  ENSURE(stopped.view == view_->id, "reports of other views do not count");
  peers_.enter_phase(member, Peer::Phase::kStopped);
  ENSURE(is_in_view(id), "an active member is in the present view");
  member.stopped = stopped;
  member.committed = stopped.committed;
  committed_ = std::max(committed_, stopped.committed);
}

void Membership::start_counting(const Peer& peer, bool had_started) {
  started_ += !had_started && peer.has_started() ? 1 : 0;
  ENSURE(started_ <= view_->members.size(), "a member starts once in a view");
}

void Membership::formed(MemberId id) {
  Peer& member = active_peer(id);
  const bool had_started = member.has_started();
  member.formed = true;
  start_counting(member, had_started);
}

void Membership::synced(MemberId id, Instant now) {
  Peer& member = active_peer(id);
  const bool had_started = member.has_started();
  member.synced = true;
  member.returned_behind = false;
  start_counting(member, had_started);
  if (member.join && member.join->snapshots == 0) {
    member.join->caught_up = now;
  }
}

void Membership::progressed(MemberId id, const Progress& progress, Instant now) {
  Peer& member = active_peer(id);
  member.committed = std::max(member.committed, progress.committed);
  committed_ = std::max(committed_, progress.committed);
  member.speed.add(now, progress.microbatch_ms, progress.microbatches, speed_sample_);
  member.stages = progress.stages.compute_threads > 0 ? progress.stages : member.stages;
  member.use = progress.use.memory_mib > 0 ? progress.use : member.use;
}

bool Membership::caught_up(MemberId id, Instant now) {
  Peer& member = active_peer(id);
  if (!member.lacks_state()) {
    return false;
  }
  ENSURE(is_in_view(id), "observers are members of the view");
  member.caught_up = now;
  return true;
}

std::vector<Join> Membership::take_joins(Instant now) {
  ENSURE(view_, "only a published view is joined");
  std::vector<Join> joins;
  if (!std::exchange(has_starters_, false)) {
    return joins;
  }
  for (const ViewMember& member : view_->members) {
    Peer* const joiner = peers_.find(member.id);
    if (member.is_observer() || joiner == nullptr || !joiner->join ||
        joiner->phase() == Peer::Phase::kLoading || joiner->phase() == Peer::Phase::kReady) {
      continue;  // the last two: it was evicted, and joins again under its id
    }
    Join join = *std::exchange(joiner->join, std::nullopt);
    join.member = member.id;
    join.step = now;
    join.caught_up = std::max(join.caught_up, join.admitted);
    joins.push_back(join);
  }
  return joins;
}

void Membership::forget_claims() {
  committed_ = view_ ? view_->committed : Step{};
  for (const auto& [id, peer] : peers()) {
    if (peer.phase() == Peer::Phase::kActive || peer.phase() == Peer::Phase::kStopped) {
      committed_ = std::max(committed_, peer.committed);
    }
  }
}

void Membership::take_back(MemberId id, const Hello& hello, bool is_in_charge) {
  const bool is_beside_state = may_hold_state();
  Peer& back = add(id, hello, Peer::Phase::kReturning);
  back.joins_again = hello.joins_again;
  // There may be a newer checkpoint by now. A member that joins again asks for it like a new
  // worker. It is offered one by the coordinator in charge, if no member has the state then.
  const bool is_offered = hello.joins_again && (is_in_charge || hello.view != ViewId{});
  back.may_lack_newest_state = is_offered ? is_beside_state : hello.view == ViewId{};
}

void Membership::ask_all_again() {
  for (auto& [id, peer] : peers_) {
    if (peer.phase() != Peer::Phase::kDismissed) {
      peers_.enter_phase(peer, Peer::Phase::kReturning);
      peer.resume.reset();
    }
  }
}

void Membership::resumed(MemberId id, const Resume& resume) {
  Peer& member = peers_.at(id);
  ENSURE(member.phase() == Peer::Phase::kReturning,
         "only a returning member has to report its phase");
  member.resume = resume;
  const bool has_entered = view_ && has_part(resume) && resume.view->id >= view_->id;
  is_progress_unknown_ = is_progress_unknown_ && !has_entered;
}

std::optional<Step> Membership::amend_report(MemberId id, const Message& message) {
  Peer& member = peers_.at(id);
  ENSURE(member.phase() == Peer::Phase::kReturning && member.resume,
         "a returning member has reported first");
  const std::optional<Step> committed = amend(*member.resume, message);
  if (committed) {
    raise_committed(*committed);
  }
  return committed;
}

std::vector<MemberId> Membership::missing() const {
  ENSURE(view_, "without a view no member is missing");
  std::vector<MemberId> absent;
  for (const ViewMember& member : view_->members) {
    const Peer* found = find(member.id);
    if (found == nullptr || !found->resume) {
      absent.push_back(member.id);
    }
  }
  return absent;
}

bool Membership::place(MemberId id, Instant now) {
  Peer& peer = peers_.at(id);
  ENSURE(peer.phase() == Peer::Phase::kReturning && peer.resume,
         "a report gives a member its place");
  const Resume report = *std::exchange(peer.resume, std::nullopt);
  peer.joins_again = false;
  peer.committed = report.committed;
  peer.state_bytes = report.state_bytes;
  peer.speed.add(now, report.microbatch_ms, 1, speed_sample_);
  if (report.is_leaving) {
    peers_.wants_to_leave(peer, report.leave_reason);
  }
  peer.join.reset();
  if (!has_part(report)) {
    peer.loaded = report.committed;
    peer.stopped = {};  // needed for the quorum's consent
    peer.stopped.view = report.view ? report.view->id : ViewId{};
    peer.stopped.contributed = !report.last || report.last->contributed;
    peers_.enter_phase(
        peer, report.phase == ResumePhase::kReady ? Peer::Phase::kReady : Peer::Phase::kLoading);
    place_beside(peer, now);
    return true;
  }
  if (!is_in_view(id) && steps_need_all_members_ &&
      holds_newest_state(id, report, peers(), view_->id)) {
    peer.stopped = *report.last;
    peers_.enter_phase(peer, Peer::Phase::kReady);
    place_beside(peer, now);
    return true;
  }
  if (!is_in_view(id) || (report.view->id != view_->id && report.phase == ResumePhase::kRunning)) {
    return false;
  }
  peers_.enter_phase(
      peer, report.phase == ResumePhase::kRunning ? Peer::Phase::kActive : Peer::Phase::kStopped);
  place_within(peer, id, report, now);
  return true;
}

void Membership::adopt(const View& view) {
  view_ = view;
  std::erase_if(fenced_, [this](MemberId id) { return is_in_view(id); });
  started_ = 0;
  committed_ = std::max(committed_, view.committed);
  view_has_observers_ = view.has_observers();
}

void Membership::go_back_to(Step committed) {
  ENSURE(committed < committed_, "a step is undone only if a later one was committed");
  undone_ = std::max(undone_, committed_);
  committed_ = committed;
}

std::optional<View> Membership::enter(const View& view, Instant now, Outbox& outbox) {
  ENSURE(!view_ || value(view.id) > value(view_->id), "views only grow");
  for (const ViewMember& member : view.members) {
    Peer& entering = peers_.at(member.id);
    ENSURE(entering.is_candidate(), "a view is made of members that are ready for it");
    note_copy(entering, view);
    note_admission(member, entering, view, now, outbox);
    peers_.enter_phase(entering, Peer::Phase::kActive);
    entering.formed = entering.synced = false;
  }
  for (auto& [id, peer] : peers_) {
    peer.may_lack_newest_state = peer.may_lack_newest_state || peer.phase() != Peer::Phase::kActive;
  }
  ENSURE(count(Peer::Phase::kActive) == view.members.size() && count(Peer::Phase::kStopped) == 0,
         "exactly the members of the view are active, and every member with sums is among them");
  fenced_.clear();
  is_progress_unknown_ = false;
  std::optional<View> before = std::exchange(view_, std::nullopt);
  adopt(view);
  check_members();
  return before;
}

void Membership::check_invariants() const {
  using enum Peer::Phase;
  const std::size_t places = view_ ? view_->members.size() : 0;
  peers_.check_invariants();
  ENSURE(count(kActive) + count(kStopped) <= places, "members of the view have places in it");
  ENSURE(started_ <= places, "only members of the view start in it");
  ENSURE(view_ || (!view_has_observers_ && !has_starters_ && !is_progress_unknown_),
         "only a published view has observers, starters and progress");
  ENSURE(!view_ || view_->committed <= committed_, "a view begins after a committed step");
}

void Membership::check_members() const {
  using enum Peer::Phase;
  check_invariants();
  peers_.check_peers();
  for (const auto& [id, peer] : peers()) {
    const Peer::Phase phase = peer.phase();
    ENSURE((phase != kActive && phase != kStopped) || is_in_view(id),
           "only members of the view are active in it or have stopped");
    ENSURE((phase != kLoading && phase != kReady) || peer.join,
           "a worker without a part in the view is about to join");
    ENSURE(!peer.resume || phase == kReturning || phase == kDismissed,
           "the report of a returning member is used up when it gets its place");
    ENSURE(phase != kStopped || peer.stopped.view <= view_->id, "no member has left a later view");
  }
}

/// `peer` is about to be in `view`; view_ is still the one before.
void Membership::note_copy(Peer& peer, const View& view) const {
  const bool was_compared =
      view_ && peer.phase() == Peer::Phase::kStopped && peer.committed > view_->committed;
  peer.copied_state = (peer.copied_state && !was_compared) || peer.observes != ViewId{} ||
                      peer.committed < view.committed;
}

/// `member` is a member of the view that is being published.
void Membership::note_admission(const ViewMember& member, Peer& peer, const View& view, Instant now,
                                Outbox& outbox) {
  if (peer.phase() == Peer::Phase::kReady) {
    outbox.note("joined", member.id, peer.host);
    peer.may_lack_newest_state = peer.may_lack_newest_state || peer.committed < view.committed;
    if (view_) {
      peer.join->admitted = now;
      peer.join->admitted_after = view.committed;
    } else {
      peer.join.reset();  // it is in the first view
    }
  }
  if (member.observes == view.id) {
    peer.donors.clear();
    for (const Rank donor : donors_of(view)) {
      peer.donors.push_back(view.members[value(donor)].id);
    }
  }
  if (peer.join) {
    peer.join->snapshots += member.observes == view.id ? 1 : 0;
    if (peer.caught_up) {
      peer.join->caught_up = *peer.caught_up;
    }
    if (!member.is_observer()) {
      has_starters_ = true;
      peer.join->promoted = now;
      peer.join->started_after = view.committed;
    }
  }
  peer.observes = member.observes;
  peer.caught_up.reset();
}

}  // namespace mayfly::elastic
