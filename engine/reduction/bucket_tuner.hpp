#pragma once

// Finds the size of buckets with the fastest steps while the job trains (--bucket-kib auto). Pure:
// a state machine that every member runs with the same numbers, so that all members choose the same
// size without sending messages. The choice depends on the slowest member's time of a step, which
// the members learn from a maximum in the next step's reduction. A joining worker receives the
// content of the machine with the state.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace mayfly::engine {

class BucketTuner {
 public:
  /// The number of consecutive steps with one candidate; the time of the first is not used.
  static constexpr std::uint32_t kRun = 4;
  /// How many such runs each candidate gets.
  static constexpr std::uint32_t kTurns = 3;

  /// `candidates`: sizes in elements, at least one; with exactly one there is nothing to try.
  explicit BucketTuner(std::vector<std::size_t> candidates);

  /// The size for the next step.
  [[nodiscard]] std::size_t elements() const { return candidates_[candidate_of(committed_)]; }
  /// To be called when a step was committed. `previous_step_us`: the duration of the step before
  /// it; 0 = not known, as in the first step of a view.
  void step_committed(std::uint32_t previous_step_us);
  /// Whether every candidate was tried often enough: elements() does not change any more.
  [[nodiscard]] bool decided() const { return committed_ >= steps(); }
  /// Median microseconds of a step with the present size; 0 if not known.
  [[nodiscard]] std::uint32_t typical_us() const { return median(candidate_of(committed_)); }

  /// Whether there is more than one candidate.
  [[nodiscard]] bool tries() const { return candidates_.size() > 1; }

  /// The size of the content that pack() writes for a joining member; always the same.
  [[nodiscard]] std::size_t packed_size() const;
  void pack(std::span<std::byte> out) const;
  /// The number of steps in which a tuner with this content has tried sizes.
  [[nodiscard]] static std::uint32_t tries_in(ByteSpan packed);
  /// kCorrupt if pack() cannot have written these bytes.
  [[nodiscard]] Result<void> unpack(ByteSpan packed);

 private:
  static constexpr std::size_t kSamples = std::size_t{kRun - 1} * kTurns;

  [[nodiscard]] std::uint32_t steps() const;
  [[nodiscard]] std::size_t candidate_of(std::uint32_t step) const;
  [[nodiscard]] std::uint32_t median(std::size_t candidate) const;
  void decide();
  void check_invariants() const;

  std::vector<std::size_t> candidates_;
  std::uint32_t committed_ = 0;  // steps since the job (or its resumption) began, up to steps()
  std::uint32_t chosen_ = 0;     // candidate, once decided
  std::vector<std::uint32_t> samples_;  // kSamples places per candidate, 0 = none
};

}  // namespace mayfly::engine
