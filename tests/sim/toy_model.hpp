#pragma once

// A model whose state is one number. Its sums are exact and independent of order, as the engine's
// are, and every microbatch changes every later state, so a lost or repeated one cannot hide.

#include <cstdint>

#include "base/random.hpp"

namespace mayfly::sim {

using ToyState = std::uint64_t;

inline constexpr ToyState kInitialState = 0x1234'5678'9abc'def0ULL;

[[nodiscard]] constexpr std::uint64_t gradient(ToyState state, std::uint64_t step,
                                               std::uint32_t microbatch) {
  return mix64(state ^ mix64(step * 8192 + microbatch));
}
[[nodiscard]] constexpr ToyState update(ToyState state, std::uint64_t sum) {
  return mix64(state + 3 * sum);
}

/// The state after `step` steps of an undisturbed run.
[[nodiscard]] constexpr ToyState next_state(ToyState state, std::uint64_t step,
                                            std::uint32_t microbatches) {
  std::uint64_t sum = 0;
  for (std::uint32_t m = 0; m < microbatches; ++m) {
    sum += gradient(state, step, m);
  }
  return update(state, sum);
}

}  // namespace mayfly::sim
