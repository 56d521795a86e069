#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/random.hpp"
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

void Coordinator::publish() {
  const bool is_resumed = membership_.view() && phase_ != Phase::kStopping;
  const View view = make_view(membership_.next_members());
  if (view.committed < membership_.committed()) {
    outbox_.note("restarted", std::nullopt,
                 "every holder of step " + std::to_string(value(membership_.committed())) +
                     " is gone; resuming after " + std::to_string(value(view.committed)));
    membership_.go_back_to(view.committed);
  }
  if (is_resumed) {
    outbox_.note("resumed", std::nullopt, "");
  }
  settle_later(view);
  const std::optional<View> before = membership_.enter(view, now_, outbox_);
  store_.clear();
  phase_ = Phase::kRunning;
  rebalancer_.view_began();
  waiting_since_.reset();
  no_quorum_since_.reset();
  idle_since_.reset();
  is_view_active_ = false;
  stalls_.restart();
  announce(view, before);
}

View Coordinator::make_view(const Candidates& candidates) const {
  ENSURE(!candidates.empty() && candidates.size() <= kMembersMax, "a view has members");
  View view;
  view.id = ViewId{
      std::max(membership_.view() ? value(membership_.view()->id) : 0, id_base(incarnation_)) + 1};
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
  for (const auto& [id, peer] : membership_.peers()) {
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
  for (const auto& [id, peer] : membership_.candidates()) {
    if (peer->phase == Peer::Phase::kStopped && peer->committed == view.committed) {
      held.add_all(peer->stopped.held);
    }
  }
  if (held.empty() || !membership_.view()) {
    return 0;  // nobody had begun the step
  }
  MicrobatchSet of_lost;
  for (const ViewMember& member : membership_.view()->members) {
    if (membership_.find(member.id) == nullptr) {
      of_lost.add_all(view.committed == membership_.view()->committed
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
  outbox_.append(log_record::ViewPublished{view}, !before);
  const bool by_delta = before && before->members.size() >= options_.delta_from_members;
  std::vector<MemberId> know_before;
  std::vector<MemberId> others;
  for (const ViewMember& member : view.members) {
    (by_delta && member_of(*before, member.id) != nullptr ? know_before : others)
        .push_back(member.id);
  }
  if (!know_before.empty()) {
    outbox_.add(coordinator_effect::SendToAll{std::move(know_before),
                                              NewViewDelta{make_delta(*before, view)}});
  }
  if (!others.empty()) {
    outbox_.add(coordinator_effect::SendToAll{std::move(others), NewView{view}});
  }
  outbox_.add(coordinator_effect::ViewPublished{view});
  outbox_.note("view", std::nullopt, describe(view));
}

}  // namespace mayfly::elastic
