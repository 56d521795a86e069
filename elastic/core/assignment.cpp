#include "elastic/core/assignment.hpp"

#include <algorithm>
#include <compare>
#include <functional>
#include <span>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

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
/// held anything.
class Queue {
 public:
  Queue(const std::vector<float>& times, std::uint32_t given_each,
        std::span<const MicrobatchSet> held = {})
      : times_(times), counts_(times.size(), given_each) {
    for (std::size_t rank = 0; rank < times.size(); ++rank) {
      waiting_.push_back({cost_of(rank), held.empty() ? 0 : held[rank].count(), rank});
    }
    std::make_heap(waiting_.begin(), waiting_.end(), std::greater<>());
  }
  std::size_t give_one() {
    std::pop_heap(waiting_.begin(), waiting_.end(), std::greater<>());
    Waiting& next = waiting_.back();
    const std::size_t rank = next.rank;
    ++counts_[rank];
    next.cost = cost_of(rank);
    std::push_heap(waiting_.begin(), waiting_.end(), std::greater<>());
    return rank;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& counts() const { return counts_; }

 private:
  struct Waiting {
    float cost = 0;  // of one more
    std::uint32_t held = 0;
    std::size_t rank = 0;

    friend auto operator<=>(const Waiting&, const Waiting&) = default;
  };

  [[nodiscard]] float cost_of(std::size_t rank) const {
    return times_[rank] * static_cast<float>(counts_[rank] + 1);
  }

  const std::vector<float>& times_;
  std::vector<std::uint32_t> counts_;
  std::vector<Waiting> waiting_;  // a heap
};

std::vector<std::uint32_t> proportional_counts(const std::vector<float>& times,
                                               std::uint32_t microbatches) {
  const auto ranks = static_cast<std::uint32_t>(times.size());
  const bool enough = microbatches >= ranks;
  Queue queue(times, enough ? 1 : 0);
  for (std::uint32_t given = enough ? ranks : 0; given < microbatches; ++given) {
    (void)queue.give_one();
  }
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
                                           const std::vector<float>& microbatch_ms,
                                           std::uint32_t microbatches) {
  ENSURE(held.size() == microbatch_ms.size(), "one set and one speed per rank");
  MicrobatchSet missing = MicrobatchSet::range(0, microbatches);
  std::vector<MicrobatchSet> sets;
  for (const MicrobatchSet& own : held) {
    sets.push_back(own.minus(own.minus(missing)));
    missing = missing.minus(own);
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
  for (const std::uint32_t microbatch : missing.list()) {
    sets[queue.give_one()].add(microbatch);
  }
  return sets;
}

}  // namespace mayfly::elastic
