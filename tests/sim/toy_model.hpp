#pragma once

// A model whose state is one number. Like the engine's, its sums are exact and do not depend on the
// order. Every microbatch changes all later states, so a lost or repeated microbatch is detected. A
// sum is a short vector of integers, so that it can be divided into buckets and segments.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random.hpp"

namespace mayfly::sim {

using ToyState = std::uint64_t;

inline constexpr ToyState kInitialState = 0x1234'5678'9abc'def0ULL;
inline constexpr std::size_t kGradientLanes = 6;

/// The whole state of a member. `deep` stands for momentum and statistics, from which no gradient
/// is computed; its right value is 0.
struct StateCopy {
  ToyState state = 0;
  std::uint64_t deep = 0;
};
/// The check of a state that members compare; below 2^32.
[[nodiscard]] constexpr std::uint64_t check_of(const StateCopy& copy) {
  return mix64(copy.state ^ mix64(copy.deep)) >> 32;
}

/// The sum of some microbatches: of their gradients, and of the hashes of their samples.
struct ToySum {
  std::array<std::uint64_t, kGradientLanes> gradient{};
  std::uint64_t samples = 0;

  constexpr ToySum& operator+=(const ToySum& other) {
    for (std::size_t i = 0; i < kGradientLanes; ++i) {
      gradient[i] += other.gradient[i];
    }
    samples += other.samples;
    return *this;
  }
  constexpr ToySum& operator-=(const ToySum& other) {
    for (std::size_t i = 0; i < kGradientLanes; ++i) {
      gradient[i] -= other.gradient[i];
    }
    samples -= other.samples;
    return *this;
  }
};

/// The gradient alone; see SampleOrder for the samples.
[[nodiscard]] constexpr ToySum gradient(ToyState state, std::uint64_t step,
                                        std::uint32_t microbatch) {
  ToySum sum;
  std::uint64_t bits = mix64(state ^ mix64((step << 16) + microbatch));
  for (std::uint64_t& lane : sum.gradient) {
    lane = bits = mix64(bits);
  }
  return sum;
}
[[nodiscard]] constexpr ToyState update(ToyState state, const ToySum& sum) {
  for (const std::uint64_t lane : sum.gradient) {
    state = mix64(state + 3 * lane);
  }
  return state;
}

/// The state after `step` steps of an undisturbed run.
[[nodiscard]] constexpr ToyState next_state(ToyState state, std::uint64_t step,
                                            std::uint32_t microbatches) {
  ToySum sum;
  for (std::uint32_t m = 0; m < microbatches; ++m) {
    sum += gradient(state, step, m);
  }
  return update(state, sum);
}

}  // namespace mayfly::sim
