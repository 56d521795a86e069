#pragma once

// The vector loops behind exact_sum.cpp, dispatched at run time. Private to this folder.

#include <cstddef>
#include <cstdint>

namespace mayfly::collectives::internal {

/// acc[i] += nearest integer to gradient[i] * scale (or = it, if `add` is false); returns the
/// largest bit pattern of |gradient[i]|, which orders like the magnitude itself, with infinities
/// and NaNs above everything.
std::uint32_t scale_round_add(const float* gradient, float scale, bool add, std::int32_t* acc,
                              std::size_t count);

/// out[i] = float(sum[i]) * factor.
void scale_to_float(const std::int32_t* sum, float factor, float* out, std::size_t count);

}  // namespace mayfly::collectives::internal
