#include "elastic/core/assignment.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

/// The microbatches of a step that have no owner yet. Takes constant time for each microbatch,
/// however they are distributed: in a large job every member may hold some.
class Unowned {
 public:
  explicit Unowned(std::uint32_t microbatches)
      : is_free_(microbatches, true), count_(microbatches) {}

  /// Takes the microbatches of `wanted` that have no owner, in ascending order, at most
  /// `count_max`.
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

constexpr float kEqualWithin = 1.2F;

/// The speed that is assumed for a member whose speed has not been measured yet.
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

/// Assigns microbatches one by one to the rank that would finish one more first; among equals to
/// the rank that held fewer before, then to the lower rank. `held` is by rank; empty if no member
/// held any. In a large job most microbatches are assigned in one pass, with the same result.
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
    if (left <= waiting_.size() && assign_one_to_each(left)) {
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
    float cost = 0;  // time after which the rank would finish one more
    std::uint32_t held = 0;
    std::size_t rank = 0;

    friend auto operator<=>(const Waiting&, const Waiting&) = default;
  };

  [[nodiscard]] float cost_of(std::size_t rank, std::uint32_t count) const {
    return times_[rank] * static_cast<float>(count);
  }
  /// The largest count with which the rank finishes before `limit`; not less than it already has.
  [[nodiscard]] std::uint32_t count_below(float limit, std::size_t rank) const {
    auto count = static_cast<std::uint32_t>(
        std::min<float>(limit / times_[rank], static_cast<float>(kMicrobatchesMax)));
    for (; count > 0 && cost_of(rank, count) >= limit; --count) {
    }
    for (; count < kMicrobatchesMax && cost_of(rank, count + 1) < limit; ++count) {
    }
    return std::max(count, counts_[rank]);
  }
  /// Assigns to each rank all microbatches that it would finish before a limit, which is chosen so
  /// that they are at most `microbatches`. The order does not matter for these. Returns their
  /// number.
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
  /// Gives one microbatch to each of the first `left` ranks in the order; gives none and returns
  /// false if one of them would then still be among the first.
  bool assign_one_to_each(std::uint32_t left) {
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
  std::uint32_t used = 0;  // microbatches of `*run` that are assigned
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

}  // namespace mayfly::elastic
