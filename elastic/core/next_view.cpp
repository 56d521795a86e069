#include "elastic/core/next_view.hpp"

#include <algorithm>
#include <compare>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/random.hpp"

namespace mayfly::elastic {
namespace {

/// The microbatches of a step that have no owner yet. One look per microbatch, however they lie: in
/// a large job everybody may hold some.
class Unowned {
 public:
  explicit Unowned(std::uint32_t microbatches)
      : is_free_(microbatches, true), count_(microbatches) {}

  /// Those of `wanted` that nobody has, in ascending order, at most so many; they are owned now.
  MicrobatchSet take(const MicrobatchSet& wanted, std::uint32_t count_max) {
    MicrobatchSet taken;
    for (const MicrobatchSet::Run& run : wanted.runs()) {
      for (std::uint32_t m = run.first; m < std::min(run.end(), size()) && count_max > 0; ++m) {
        if (is_free_[m]) {
          is_free_[m] = false;
          taken.add(m);
          --count_max;
          --count_;
        }
      }
    }
    return taken;
  }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] MicrobatchSet left() const {
    MicrobatchSet left;
    for (std::uint32_t m = 0; m < size(); ++m) {
      if (is_free_[m]) {
        left.add(m);
      }
    }
    return left;
  }

 private:
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(is_free_.size()); }

  std::vector<bool> is_free_;
  std::uint32_t count_;
};

void check_covers_once(const View& view, std::uint32_t microbatches) {
  Unowned left(microbatches);
  std::uint32_t total = 0;
  for (const ViewMember& member : view.members) {
    (void)left.take(member.first_step, microbatches);
    total += member.first_step.count();
  }
  ENSURE(total == microbatches && left.count() == 0,
         "each microbatch of the first step has exactly one owner");
}

std::string line_about(const View& view) {
  std::string text = "view " + std::to_string(value(view.id)) + " resumes after step " +
                     std::to_string(value(view.committed)) + " with members";
  for (const ViewMember& member : view.members) {
    text += ' ' + std::to_string(value(member.id));
  }
  return text;
}

/// It has every sum since its snapshot, and everybody who sends the snapshot is still there.
bool goes_on_observing(const Peer& peer, const View& view, const Membership& membership) {
  return peer.observes != ViewId{} && peer.stopped.observed >= view.committed &&
         !peer.donors.empty() && std::ranges::all_of(peer.donors, [&membership](MemberId donor) {
           const Peer* found = membership.find(donor);
           return found != nullptr && found->phase == Peer::Phase::kStopped;
         });
}

/// What it would compute in the step after `committed` if the last view went on.
MicrobatchSet usual_work(MemberId id, const Membership& membership, Step committed) {
  const std::optional<View>& before = membership.view();
  const ViewMember* member = before ? member_of(*before, id) : nullptr;
  return member == nullptr ? MicrobatchSet{} : due_after(*before, *member, committed);
}

/// By candidate: the state that it takes in the background; zero for those that are to work. They
/// have the view's state, or it is small enough to be sent while all wait.
std::vector<ViewId> observed_states(const Candidates& candidates, const View& view,
                                    const Membership& membership,
                                    std::uint64_t observe_from_bytes) {
  std::vector<ViewId> observed(candidates.size());
  // A small state, or a member that missed the end of the last step and has work to do at once: all
  // wait until it has the state, and so everybody else may have it, too.
  const bool all_wait = std::ranges::any_of(candidates, [&](const auto& entry) {
    const Peer& peer = *entry.second;
    const bool worked = peer.phase == Peer::Phase::kStopped && peer.observes == ViewId{};
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
    if (peer.phase != Peer::Phase::kActive || peer.observes == ViewId{} || peer.leaving) {
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

constexpr float kEqualWithin = 1.2F;

/// What a member counts as whose speed nobody has measured yet.
enum class Unknown { kMedian, kFastest };

/// Times by rank with the unknown ones filled in; all 1 if they are about equal.
std::vector<float> comparable_times(std::vector<float> times, Unknown unknown) {
  std::vector<float> known;
  for (const float time : times) {
    if (time > 0) {
      known.push_back(time);
    }
  }
  if (known.empty()) {
    return std::vector<float>(times.size(), 1.0F);
  }
  std::sort(known.begin(), known.end());
  if (known.back() <= known.front() * kEqualWithin) {
    return std::vector<float>(times.size(), 1.0F);
  }
  const float assumed = unknown == Unknown::kMedian ? known[known.size() / 2] : known.front();
  std::replace_if(
      times.begin(), times.end(), [](float time) { return !(time > 0); }, assumed);
  return times;
}

/// Gives out microbatches one by one to the rank that would be done first with one more; if equal,
/// to the one that held fewer before, then to the lower rank. `held` is by rank, or empty: nobody
/// held anything. A large job has so many that most are given at once; the result is the same.
class Queue {
 public:
  Queue(const std::vector<float>& times, std::uint32_t given_each,
        std::span<const MicrobatchSet> held = {})
      : times_(times), counts_(times.size(), given_each) {
    for (std::size_t rank = 0; rank < times.size(); ++rank) {
      waiting_.push_back({0, held.empty() ? 0 : held[rank].count(), rank});
    }
  }
  void give(std::uint32_t microbatches) {
    std::uint32_t left = microbatches - give_cheapest(microbatches);
    for (Waiting& each : waiting_) {
      each.cost = cost_of(each.rank, counts_[each.rank] + 1);
    }
    if (left <= waiting_.size() && give_each_one(left)) {
      return;
    }
    std::make_heap(waiting_.begin(), waiting_.end(), std::greater<>());
    for (; left > 0; --left) {
      std::pop_heap(waiting_.begin(), waiting_.end(), std::greater<>());
      Waiting& next = waiting_.back();
      next.cost = cost_of(next.rank, ++counts_[next.rank] + 1);
      std::push_heap(waiting_.begin(), waiting_.end(), std::greater<>());
    }
  }
  [[nodiscard]] const std::vector<std::uint32_t>& counts() const { return counts_; }

 private:
  struct Waiting {
    float cost = 0;  // of one more
    std::uint32_t held = 0;
    std::size_t rank = 0;

    friend auto operator<=>(const Waiting&, const Waiting&) = default;
  };

  [[nodiscard]] float cost_of(std::size_t rank, std::uint32_t count) const {
    return times_[rank] * static_cast<float>(count);
  }
  /// The most that a rank can have, each of them for less than `limit`; not less than it has.
  [[nodiscard]] std::uint32_t count_below(float limit, std::size_t rank) const {
    auto count = static_cast<std::uint32_t>(
        std::min<float>(limit / times_[rank], static_cast<float>(kMicrobatchesMax)));
    for (; count > 0 && cost_of(rank, count) >= limit; --count) {
    }
    for (; count < kMicrobatchesMax && cost_of(rank, count + 1) < limit; ++count) {
    }
    return std::max(count, counts_[rank]);
  }
  /// Everything below some cost comes before anything above it: gives all that, if it is not too
  /// much. Returns how many.
  std::uint32_t give_cheapest(std::uint32_t microbatches) {
    double speed = 0;
    double total = microbatches;
    for (std::size_t rank = 0; rank < times_.size(); ++rank) {
      speed += 1 / static_cast<double>(times_[rank]);
      total += counts_[rank];
    }
    for (const double share : {1 + 1e-5, 1 - 1e-5, 0.9, 0.5}) {
      std::vector<std::uint32_t> counts;
      std::uint64_t given = 0;
      for (std::size_t rank = 0; rank < times_.size(); ++rank) {
        counts.push_back(count_below(static_cast<float>(share * total / speed), rank));
        given += counts[rank] - counts_[rank];
      }
      if (given <= microbatches) {
        counts_ = std::move(counts);
        return static_cast<std::uint32_t>(given);
      }
    }
    return 0;
  }
  /// To the first in the order so many; false if one of them would be among the first again.
  bool give_each_one(std::uint32_t left) {
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(left);
    std::nth_element(waiting_.begin(), end, waiting_.end());
    const auto last = std::max_element(waiting_.begin(), end);
    const bool once = std::all_of(waiting_.begin(), end, [&](const Waiting& each) {
      return Waiting{cost_of(each.rank, counts_[each.rank] + 2), each.held, each.rank} > *last;
    });
    for (auto each = waiting_.begin(); once && each != end; ++each) {
      ++counts_[each->rank];
    }
    return once;
  }

  const std::vector<float>& times_;
  std::vector<std::uint32_t> counts_;
  std::vector<Waiting> waiting_;
};

std::vector<std::uint32_t> proportional_counts(const std::vector<float>& times,
                                               std::uint32_t microbatches) {
  const auto ranks = static_cast<std::uint32_t>(times.size());
  const bool enough = microbatches >= ranks;
  Queue queue(times, enough ? 1 : 0);
  queue.give(enough ? microbatches - ranks : microbatches);
  return queue.counts();
}

}  // namespace

std::vector<MicrobatchRange> proportional_ranges(const std::vector<float>& microbatch_ms,
                                                 std::uint32_t microbatches) {
  ENSURE(!microbatch_ms.empty(), "work can only be given to members");
  ENSURE(microbatches <= kMicrobatchesMax, "a step has at most kMicrobatchesMax microbatches");
  std::vector<MicrobatchRange> ranges;
  std::uint32_t first = 0;
  for (const std::uint32_t count :
       proportional_counts(comparable_times(microbatch_ms, Unknown::kMedian), microbatches)) {
    ranges.push_back({first, count});
    first += count;
  }
  ENSURE(first == microbatches, "the ranges cover the step exactly");
  return ranges;
}

std::vector<MicrobatchSet> first_step_sets(const std::vector<MicrobatchSet>& held,
                                           const std::vector<MicrobatchSet>& usual,
                                           const std::vector<float>& microbatch_ms,
                                           std::uint32_t microbatches) {
  ENSURE(held.size() == microbatch_ms.size() && held.size() == usual.size(),
         "two sets and one speed per rank");
  Unowned missing(microbatches);
  std::vector<MicrobatchSet> sets;
  for (const MicrobatchSet& own : held) {
    sets.push_back(missing.take(own, microbatches));
  }
  if (missing.count() == microbatches) {
    sets.clear();
    for (const MicrobatchRange& range : proportional_ranges(microbatch_ms, microbatches)) {
      sets.push_back(MicrobatchSet::range(range.first, range.count));
    }
    return sets;
  }
  const std::vector<float> times = comparable_times(microbatch_ms, Unknown::kFastest);
  Queue queue(times, 0, sets);
  queue.give(missing.count());
  std::vector<std::uint32_t> more = queue.counts();
  for (std::size_t rank = 0; rank < sets.size(); ++rank) {
    const MicrobatchSet kept = missing.take(usual[rank], more[rank]);
    more[rank] -= kept.count();
    sets[rank].add_all(kept);
  }
  const MicrobatchSet rest = missing.left();
  auto run = rest.runs().begin();
  std::uint32_t used = 0;  // of that run
  for (std::size_t rank = 0; rank < sets.size(); ++rank) {
    while (more[rank] > 0) {
      const std::uint32_t count = std::min(more[rank], run->count - used);
      sets[rank].add_range(run->first + used, count);
      more[rank] -= count;
      used += count;
      if (used == run->count) {
        ++run;
        used = 0;
      }
    }
  }
  return sets;
}

bool has_lost_state(const Membership& membership) {
  const Candidates all = membership.candidates();
  const bool may_be_anywhere = membership.is_progress_unknown();  // from the view's step on
  return membership.view() && !all.empty() && std::ranges::all_of(all, [&](const auto& candidate) {
           const Peer& peer = *candidate.second;
           const bool is_behind = next(peer.committed) < membership.view()->committed;
           const bool has_trained =
               peer.committed != peer.loaded && !(peer.returned_behind && is_behind);
           return peer.came_beside_state && !has_trained &&
                  (may_be_anywhere || peer.committed < membership.committed());
         });
}

View make_view(const Membership& membership, ViewId id, std::vector<ViewBase> bases,
               const CoordinatorOptions& options) {
  const Candidates candidates = membership.next_members();
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
  std::vector<std::size_t> workers;  // their ranks
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
    const bool keeps_sums = is_current && peer->phase == Peer::Phase::kStopped;
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
    if (peer.phase == Peer::Phase::kReady && member_of(next, id) != nullptr) {
      newcomers.push_back(id);
    }
  }
  return newcomers;
}

std::uint32_t count_redone(const View& next, const Membership& membership) {
  const std::optional<View>& before = membership.view();
  MicrobatchSet held;
  for (const auto& [id, peer] : membership.candidates()) {
    if (peer->phase == Peer::Phase::kStopped && peer->committed == next.committed) {
      held.add_all(peer->stopped.held);
    }
  }
  if (held.empty() || !before) {
    return 0;  // nobody had begun the step
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
    if (peer.phase == Peer::Phase::kActive && peer.leaving &&
        leaves_somebody(membership.peers(), id)) {
      leave.members.push_back(id);
    } else if (peer.phase == Peer::Phase::kReady && join.members.size() < room) {
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

/// A coordinator that finds no view in its log begins the job, with the workers that come first:
/// the first view must not be missing there while its members run it. Of later ones the log may
/// lack the last, as then the next coordinator waits for members, and they know it.
void announce(View view, const std::optional<View>& before, std::uint32_t delta_from_members,
              Outbox& outbox) {
  outbox.append(log_record::ViewPublished{view}, !before);
  const bool by_delta = before && before->members.size() >= delta_from_members;
  std::vector<MemberId> know_before;
  std::vector<MemberId> others;
  for (const ViewMember& member : view.members) {
    (by_delta && member_of(*before, member.id) != nullptr ? know_before : others)
        .push_back(member.id);
  }
  if (!know_before.empty()) {
    outbox.add(coordinator_effect::SendToAll{std::move(know_before),
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
