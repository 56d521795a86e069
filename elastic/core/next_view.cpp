#include "elastic/core/next_view.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/random.hpp"
#include "elastic/core/assignment.hpp"

namespace mayfly::elastic {
namespace {

std::string line_about(const View& view) {
  std::string text = "view " + std::to_string(value(view.id)) + " resumes after step " +
                     std::to_string(value(view.committed)) + " with members";
  for (const ViewMember& member : view.members) {
    text += ' ' + std::to_string(value(member.id));
  }
  return text;
}

/// Whether an observer can continue in the next view: it has every sum since its snapshot, and all
/// members that send the snapshot are still connected.
bool goes_on_observing(const Peer& peer, const View& view, const Membership& membership) {
  return peer.observes != ViewId{} && peer.stopped.observed >= view.committed &&
         !peer.donors.empty() && std::ranges::all_of(peer.donors, [&membership](MemberId donor) {
           const Peer* found = membership.find(donor);
           return found != nullptr && found->phase() == Peer::Phase::kStopped;
         });
}

/// The microbatches that the member would compute in the step after `committed` if the last view
/// continued.
MicrobatchSet usual_work(MemberId id, const Membership& membership, Step committed) {
  const std::optional<View>& before = membership.view();
  const ViewMember* member = before ? member_of(*before, id) : nullptr;
  return member == nullptr ? MicrobatchSet{} : due_after(*before, *member, committed);
}

/// For each candidate the view whose state it observes; zero if it is to work, because it has the
/// state of the next view, or because the state is sent while all members wait.
std::vector<ViewId> observed_states(const Candidates& candidates, const View& view,
                                    const Membership& membership,
                                    std::uint64_t observe_from_bytes) {
  std::vector<ViewId> observed(candidates.size());
  // If a state is small, or if a member that had work has missed the last commit, all members wait
  // until it has received the state. Then all others that lack the state can receive it as well.
  const bool all_wait = std::ranges::any_of(candidates, [&](const auto& entry) {
    const Peer& peer = *entry.second;
    const bool worked = peer.phase() == Peer::Phase::kStopped && peer.observes == ViewId{};
    return peer.committed < view.committed && (worked || peer.state_bytes < observe_from_bytes);
  });
  for (std::size_t i = 0; i < candidates.size() && !all_wait; ++i) {
    const Peer& peer = *candidates[i].second;
    if (peer.committed < view.committed) {
      observed[i] = goes_on_observing(peer, view, membership) ? peer.observes : view.id;
    }
  }
  return observed;
}

std::vector<MemberId> observers_to_start(const Membership& membership, Instant now,
                                         Duration start_together) {
  std::vector<MemberId> ready;
  bool others_follow = false;
  std::optional<Instant> first;
  for (const auto& [id, peer] : membership.peers()) {
    if (peer.phase() != Peer::Phase::kActive || peer.observes == ViewId{} || peer.is_leaving()) {
      continue;
    }
    if (peer.caught_up) {
      ready.push_back(id);
      first = std::min(first.value_or(*peer.caught_up), *peer.caught_up);
    } else {
      others_follow = true;
    }
  }
  if (others_follow && first && now - *first < start_together) {
    return {};
  }
  return ready;
}

}  // namespace

bool has_lost_state(const Membership& membership) {
  const Candidates all = membership.candidates();
  const bool may_be_anywhere = membership.is_progress_unknown();  // at or after the view's step
  return membership.view() && !all.empty() && std::ranges::all_of(all, [&](const auto& candidate) {
           const Peer& peer = *candidate.second;
           const bool is_behind = next(peer.committed) < membership.view()->committed;
           const bool has_trained =
               peer.committed != peer.loaded && !(peer.returned_behind && is_behind);
           return peer.may_lack_newest_state && !has_trained &&
                  (may_be_anywhere || peer.committed < membership.committed());
         });
}

View make_view(const Membership& membership, const Candidates& candidates, ViewId id,
               std::vector<ViewBase> bases, const CoordinatorOptions& options) {
  ENSURE(!candidates.empty() && candidates.size() <= kMembersMax, "a view has members");
  View view;
  view.id = id;
  view.bases = std::move(bases);
  view.key = CounterRandom(options.seed).split("view key").bits(value(view.id));
  for (const auto& [member, peer] : candidates) {
    view.committed = std::max(view.committed, peer->committed);
  }
  const std::vector<ViewId> observed =
      observed_states(candidates, view, membership, options.observe_from_bytes);
  view.members.reserve(candidates.size());
  std::vector<float> speeds;
  std::vector<MicrobatchSet> held;
  std::vector<MicrobatchSet> usual;
  std::vector<std::size_t> workers;  // ranks of members with work
  bool has_source = false;
  for (std::size_t rank = 0; rank < candidates.size(); ++rank) {
    const auto& [member, peer] = candidates[rank];
    view.members.push_back({member, peer->address, {}, 0, 0, observed[rank]});
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
    const bool keeps_sums = is_current && peer->phase() == Peer::Phase::kStopped;
    held.push_back(keeps_sums ? peer->stopped.held : MicrobatchSet{});
    usual.push_back(usual_work(member, membership, view.committed));
    speeds.push_back(peer->speed.best_ms());
  }
  const auto ranges = proportional_ranges(speeds, options.microbatches);
  auto first_step = first_step_sets(held, usual, speeds, options.microbatches);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    ViewMember& worker = view.members[workers[i]];
    worker.first_step = std::move(first_step[i]);
    worker.first = ranges[i].first;
    worker.count = ranges[i].count;
  }
  check_covers_once(view, options.microbatches);
  return view;
}

std::vector<MemberId> newcomers_in(const View& next, const Membership& membership) {
  std::vector<MemberId> newcomers;
  for (const auto& [id, peer] : membership.peers()) {
    if (peer.phase() == Peer::Phase::kReady && member_of(next, id) != nullptr) {
      newcomers.push_back(id);
    }
  }
  return newcomers;
}

std::uint32_t count_redone(const View& next, const Membership& membership) {
  const std::optional<View>& before = membership.view();
  MicrobatchSet held;
  for (const auto& [id, peer] : membership.candidates()) {
    if (peer->phase() == Peer::Phase::kStopped && peer->committed == next.committed) {
      held.add_all(peer->stopped.held);
    }
  }
  if (held.empty() || !before) {
    return 0;  // no member had begun the step
  }
  MicrobatchSet of_lost;
  for (const ViewMember& member : before->members) {
    if (membership.find(member.id) == nullptr) {
      of_lost.add_all(due_after(*before, member, next.committed));
    }
  }
  return of_lost.minus(held).count();
}

std::optional<PlannedChange> planned_change(const Membership& membership, Instant now,
                                            Duration start_together) {
  const bool may_change = membership.has_leavers() || membership.view_has_observers() ||
                          membership.count(Peer::Phase::kReady) > 0;
  if (!may_change) {
    return std::nullopt;
  }
  PlannedChange leave{ChangeCause::kLeave, {}};
  PlannedChange join{ChangeCause::kJoin, {}};
  const std::size_t room = membership.free_places(Peer::Phase::kActive);
  for (const auto& [id, peer] : membership.peers()) {
    if (peer.phase() == Peer::Phase::kActive && peer.is_leaving() &&
        leaves_somebody(membership.peers(), id)) {
      leave.members.push_back(id);
    } else if (peer.phase() == Peer::Phase::kReady && join.members.size() < room) {
      join.members.push_back(id);
    }
  }
  PlannedChange promote{ChangeCause::kPromote, {}};
  if (leave.members.empty() && join.members.empty()) {
    promote.members = observers_to_start(membership, now, start_together);
  }
  for (PlannedChange* change : {&leave, &join, &promote}) {
    if (!change->members.empty()) {
      return std::move(*change);
    }
  }
  return std::nullopt;
}

/// The first view must be in the log before its members run it: a coordinator that finds no view in
/// its log begins the job anew, with the workers that come first. The last of several views may be
/// missing there, because then the next coordinator waits for members, which know that view.
void announce(View view, const std::optional<View>& before, std::uint32_t delta_from_members,
              Outbox& outbox) {
  outbox.append(log_record::ViewPublished{view}, !before);
  const bool by_delta = before && before->members.size() >= delta_from_members;
  std::vector<MemberId> know_previous;
  std::vector<MemberId> others;
  for (const ViewMember& member : view.members) {
    (by_delta && member_of(*before, member.id) != nullptr ? know_previous : others)
        .push_back(member.id);
  }
  if (!know_previous.empty()) {
    outbox.add(coordinator_effect::SendToAll{std::move(know_previous),
                                             NewViewDelta{make_delta(*before, view)}});
  }
  if (!others.empty()) {
    outbox.add(coordinator_effect::SendToAll{std::move(others), NewView{view}});
  }
  std::string line = line_about(view);
  outbox.add(coordinator_effect::ViewPublished{std::move(view)});
  outbox.note("view", std::nullopt, std::move(line));
}

}  // namespace mayfly::elastic
