#include "elastic/core/assignment.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

constexpr float kEqualWithin = 1.2F;

/// Times by rank with the unknown ones filled in; all 1 if they are about equal.
std::vector<float> comparable_times(std::vector<float> times) {
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
  const float median = known[known.size() / 2];
  std::replace_if(
      times.begin(), times.end(), [](float time) { return !(time > 0); }, median);
  return times;
}

/// The rank that would finish first with one more microbatch; the lower rank if equal.
std::size_t first_done(const std::vector<float>& times, const std::vector<std::uint32_t>& counts) {
  std::size_t best = 0;
  for (std::size_t rank = 1; rank < times.size(); ++rank) {
    const float cost = times[rank] * static_cast<float>(counts[rank] + 1);
    if (cost < times[best] * static_cast<float>(counts[best] + 1)) {
      best = rank;
    }
  }
  return best;
}

std::vector<std::uint32_t> proportional_counts(const std::vector<float>& times,
                                               std::uint32_t microbatches) {
  const auto ranks = static_cast<std::uint32_t>(times.size());
  std::vector<std::uint32_t> counts(ranks, microbatches >= ranks ? 1 : 0);
  for (std::uint32_t given = microbatches >= ranks ? ranks : 0; given < microbatches; ++given) {
    ++counts[first_done(times, counts)];
  }
  return counts;
}

}  // namespace

std::vector<MicrobatchRange> proportional_ranges(const std::vector<float>& microbatch_ms,
                                                 std::uint32_t microbatches) {
  ENSURE(!microbatch_ms.empty(), "work can only be given to members");
  ENSURE(microbatches <= kMicrobatchesMax, "a step has at most kMicrobatchesMax microbatches");
  std::vector<MicrobatchRange> ranges;
  std::uint32_t first = 0;
  for (const std::uint32_t count :
       proportional_counts(comparable_times(microbatch_ms), microbatches)) {
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
  const std::vector<float> times = comparable_times(microbatch_ms);
  std::vector<std::uint32_t> new_work(held.size(), 0);
  for (const std::uint32_t microbatch : missing.list()) {
    const std::size_t rank = first_done(times, new_work);
    sets[rank].add(microbatch);
    ++new_work[rank];
  }
  return sets;
}

}  // namespace mayfly::elastic
