#pragma once

// The vector loops behind wrapped_sum.cpp, dispatched at run time. Private to this folder.

#include <cstddef>
#include <cstdint>

#include "collectives/plan/wrapped_sum.hpp"

namespace mayfly::collectives::internal {

/// Weights of a block's elements in the checks: odd, so that no power of two is lost.
struct CheckWeights {
  std::uint32_t linear[kBlockElements];
  std::uint32_t mixed[kBlockElements];
};

/// Returns the largest bit pattern of |gradient[i]|.
std::uint32_t scale_draw_add(const float* gradient, float scale, RoundingKey key,
                             std::uint32_t first, bool add, std::int32_t* acc, std::size_t count);
BlockCheck narrow_and_check(const std::int32_t* sum, const CheckWeights& weights,
                            std::int16_t* wire, std::size_t count);
WrappedTotal check_and_measure(const std::int16_t* total, const CheckWeights& weights,
                               std::size_t count);
/// out[i] = float(total[i]) * factor.
void widen_and_scale(const std::int16_t* total, float factor, float* out, std::size_t count);

}  // namespace mayfly::collectives::internal
