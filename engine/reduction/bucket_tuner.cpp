#include "engine/reduction/bucket_tuner.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace mayfly::engine {

BucketTuner::BucketTuner(std::vector<std::size_t> candidates)
    : candidates_(std::move(candidates)), samples_(candidates_.size() * kSamples) {
  ENSURE(!candidates_.empty(), "there is a size to use");
}

std::uint32_t BucketTuner::steps() const {
  return candidates_.size() == 1 ? 0
                                 : static_cast<std::uint32_t>(candidates_.size()) * kRun * kTurns;
}

std::size_t BucketTuner::candidate_of(std::uint32_t step) const {
  return step >= steps() ? chosen_ : step / kRun % candidates_.size();
}

void BucketTuner::step_committed(std::uint32_t previous_step_us) {
  if (decided()) {
    return;
  }
  // The duration is that of the previous step, so it is stored as a sample of that step's
  // candidate.
  if (committed_ > 0 && previous_step_us > 0 && (committed_ - 1) % kRun > 0) {
    const std::uint32_t step = committed_ - 1;
    const auto round = static_cast<std::uint32_t>(kRun * candidates_.size());
    const std::size_t place = std::size_t{step / round} * (kRun - 1) + (step % kRun - 1);
    samples_[candidate_of(step) * kSamples + place] = previous_step_us;
  }
  if (++committed_ == steps()) {
    decide();
  }
  check_invariants();
}

/// Invariants between any two steps.
void BucketTuner::check_invariants() const {
  ENSURE(committed_ <= steps() && chosen_ < candidates_.size(), "a size is tried or chosen");
  ENSURE(decided() || chosen_ == 0, "every member compares the candidates from the first one on");
}

std::uint32_t BucketTuner::median(std::size_t candidate) const {
  std::vector<std::uint32_t> known;
  for (std::size_t i = 0; i < kSamples; ++i) {
    if (const std::uint32_t sample = samples_[candidate * kSamples + i]; sample > 0) {
      known.push_back(sample);
    }
  }
  if (known.empty()) {
    return 0;
  }
  std::sort(known.begin(), known.end());
  return known[known.size() / 2];
}

void BucketTuner::decide() {
  for (std::size_t c = 1; c < candidates_.size(); ++c) {
    const std::uint32_t best = median(chosen_);
    const std::uint32_t found = median(c);
    if (found > 0 && (best == 0 || found < best)) {
      chosen_ = static_cast<std::uint32_t>(c);
    }
  }
}

std::size_t BucketTuner::packed_size() const {
  return (2 + samples_.size()) * sizeof(std::uint32_t);
}

void BucketTuner::pack(std::span<std::byte> out) const {
  ENSURE(out.size() == packed_size(), "room for exactly the content");
  const std::uint32_t head[2] = {committed_, chosen_};
  std::memcpy(out.data(), head, sizeof head);
  std::memcpy(out.data() + sizeof head, samples_.data(), samples_.size() * sizeof(std::uint32_t));
}

std::uint32_t BucketTuner::tries_in(ByteSpan packed) {
  std::uint32_t committed = 0;
  ENSURE(packed.size() >= sizeof committed, "the content of a tuner");
  std::memcpy(&committed, packed.data(), sizeof committed);
  return committed;
}

Result<void> BucketTuner::unpack(ByteSpan packed) {
  std::uint32_t head[2] = {};
  if (packed.size() != packed_size()) {
    return Error{Errc::kCorrupt, "the bucket sizes that were tried are of another length"};
  }
  std::memcpy(head, packed.data(), sizeof head);
  const bool is_early = head[0] < steps() && head[1] != 0;
  if (head[0] > steps() || head[1] >= candidates_.size() || is_early) {
    return Error{Errc::kCorrupt, "the bucket sizes that were tried are not this job's"};
  }
  committed_ = head[0];
  chosen_ = head[1];
  std::memcpy(samples_.data(), packed.data() + sizeof head,
              samples_.size() * sizeof(std::uint32_t));
  check_invariants();
  return {};
}

}  // namespace mayfly::engine
