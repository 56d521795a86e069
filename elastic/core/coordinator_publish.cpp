#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "elastic/core/assignment.hpp"
#include "elastic/core/coordinator.hpp"

// The next view, made of the members that are ready.

namespace mayfly::elastic {
namespace {

void check_covers_once(const View& view, std::uint32_t microbatches) {
  MicrobatchSet seen;
  std::uint32_t total = 0;
  for (const ViewMember& member : view.members) {
    seen.add_all(member.first_step);
    total += member.first_step.count();
  }
  ENSURE(total == microbatches && seen == MicrobatchSet::range(0, microbatches),
         "each microbatch of the first step has exactly one owner");
}

std::string describe(const View& view) {
  std::string text = "view " + std::to_string(value(view.id)) + " resumes after step " +
                     std::to_string(value(view.committed)) + " with members";
  for (const ViewMember& member : view.members) {
    text += ' ' + std::to_string(value(member.id));
  }
  return text;
}

}  // namespace

/// The members of the last view, then those that are ready, as long as there is room.
Coordinator::Candidates Coordinator::next_members() const {
  std::size_t room = free_places(Peer::Phase::kStopped);
  Candidates members;
  for (const auto& [id, peer] : candidates()) {
    if (peer->phase == Peer::Phase::kReady) {
      if (room == 0) {
        continue;
      }
      --room;
    }
    members.emplace_back(id, peer);
  }
  return members;
}

void Coordinator::publish() {
  const bool is_resumed = view_ && phase_ != Phase::kStopping;
  View view = make_view(next_members());
  ENSURE(!view_ || value(view.id) > value(view_->id), "views only grow");
  if (view.committed < committed_) {
    note("restarted", std::nullopt,
         "every holder of step " + std::to_string(value(committed_)) + " is gone; resuming after " +
             std::to_string(value(view.committed)));
    undone_ = std::max(undone_, committed_);
    committed_ = view.committed;
  }
  if (is_resumed) {
    note("resumed", std::nullopt, "");
  }
  settle_later(view);
  for (const ViewMember& member : view.members) {
    Peer& peer = peers_.at(member.id);
    note_copy(peer, view);
    note_admission(member, peer, view);
    peer.phase = Peer::Phase::kActive;
    peer.formed = peer.synced = false;
  }
  started_ = 0;
  store_.clear();
  phase_ = Phase::kRunning;
  rebalancer_.view_began();
  waiting_since_.reset();
  no_quorum_since_.reset();
  idle_since_.reset();
  fenced_.clear();
  is_view_active_ = false;
  stalls_.restart();
  const std::optional<View> before = std::exchange(view_, std::move(view));
  announce(*view_, before);
}

View Coordinator::make_view(const Candidates& candidates) const {
  ENSURE(!candidates.empty() && candidates.size() <= kMembersMax, "a view has members");
  View view;
  view.id = ViewId{std::max(view_ ? value(view_->id) : 0, id_base(incarnation_)) + 1};
  ENSURE(incarnation_of(view.id) == incarnation_, "an incarnation has ids for all its views");
  const auto bases = next_bases(consent());
  ENSURE(bases, "a view is made only with a quorum");
  view.bases = *bases;
  view.key = CounterRandom(options_.seed).split("view key").bits(value(view.id));
  for (const auto& [id, peer] : candidates) {
    view.committed = std::max(view.committed, peer->committed);
  }
  const std::vector<ViewId> observed = observed_states(candidates, view);
  std::vector<float> speeds;
  std::vector<MicrobatchSet> held;
  std::vector<std::size_t> workers;  // their ranks
  bool has_source = false;
  for (std::size_t rank = 0; rank < candidates.size(); ++rank) {
    const auto& [id, peer] = candidates[rank];
    view.members.push_back({id, peer->address, {}, 0, 0, observed[rank]});
    if (view.members.back().is_observer()) {
      continue;
    }
    workers.push_back(rank);
    const bool is_current = peer->committed == view.committed;
    if (is_current && !has_source) {
      has_source = true;
      view.source = static_cast<Rank>(rank);
    }
    if (!is_current) {
      view.behind.push_back(static_cast<Rank>(rank));
    }
    const bool keeps_sums = is_current && peer->phase == Peer::Phase::kStopped;
    held.push_back(keeps_sums ? peer->stopped.held : MicrobatchSet{});
    speeds.push_back(peer->speed.best_ms());
  }
  const auto ranges = proportional_ranges(speeds, options_.microbatches);
  auto first_step = first_step_sets(held, speeds, options_.microbatches);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    ViewMember& member = view.members[workers[i]];
    member.first_step = std::move(first_step[i]);
    member.first = ranges[i].first;
    member.count = ranges[i].count;
  }
  check_covers_once(view, options_.microbatches);
  return view;
}

/// The change is published; it is reported when the new view's members have all started.
void Coordinator::settle_later(const View& view) {
  settling_.reset();
  has_first_commit_ = false;
  if (!change_ || change_->cause == "pause") {
    change_.reset();
    return;
  }
  if (change_->cause == "finish") {
    change_->cause = "group_failed";  // some finished, some did not
  }
  const auto is_member = [&view](MemberId id) {
    return std::any_of(view.members.begin(), view.members.end(),
                       [id](const ViewMember& member) { return member.id == id; });
  };
  for (const auto& [id, peer] : peers_) {
    const bool is_listed =
        std::find(change_->members.begin(), change_->members.end(), id) != change_->members.end();
    if (peer.phase == Peer::Phase::kReady && is_member(id) && !is_listed) {
      change_->members.push_back(id);
    }
  }
  change_->new_view = view.id;
  change_->committed = view.committed;
  change_->stopped = now_;
  change_->redone_microbatches = count_redone(view);
  settling_ = std::move(change_);
  change_.reset();
}

std::uint32_t Coordinator::count_redone(const View& view) const {
  MicrobatchSet held;
  for (const auto& [id, peer] : candidates()) {
    if (peer->phase == Peer::Phase::kStopped && peer->committed == view.committed) {
      held.add_all(peer->stopped.held);
    }
  }
  if (held.empty() || !view_) {
    return 0;  // nobody had begun the step
  }
  MicrobatchSet of_lost;
  for (const ViewMember& member : view_->members) {
    if (!peers_.contains(member.id)) {
      of_lost.add_all(view.committed == view_->committed
                          ? member.first_step
                          : MicrobatchSet::range(member.first, member.count));
    }
  }
  return of_lost.minus(held).count();
}

/// A coordinator that finds no view in its log begins the job, with whoever comes first: the first
/// view must not be missing there while its members run it. Of later ones the log may lack the
/// last, as then the next coordinator waits for members, and they know it.
void Coordinator::announce(const View& view, const std::optional<View>& before) {
  append(log_record::ViewPublished{view}, !before);
  const bool by_delta = before && before->members.size() >= options_.delta_from_members;
  std::vector<MemberId> know_before;
  std::vector<MemberId> others;
  for (const ViewMember& member : view.members) {
    (by_delta && member_of(*before, member.id) != nullptr ? know_before : others)
        .push_back(member.id);
  }
  if (!know_before.empty()) {
    effects_.emplace_back(coordinator_effect::SendToAll{std::move(know_before),
                                                        NewViewDelta{make_delta(*before, view)}});
  }
  if (!others.empty()) {
    effects_.emplace_back(coordinator_effect::SendToAll{std::move(others), NewView{view}});
  }
  effects_.emplace_back(coordinator_effect::ViewPublished{view});
  note("view", std::nullopt, describe(view));
}

}  // namespace mayfly::elastic
