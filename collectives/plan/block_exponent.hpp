#pragma once

// Exponents of blocks as bit patterns of floats. Private to this folder.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "collectives/plan/exact_sum.hpp"

namespace mayfly::collectives::internal {

inline constexpr std::uint32_t kInfinityPattern = 0x7f800000;
inline constexpr int kFloatBias = 127;
inline constexpr int kFloatMantissaBits = 23;

/// The bit pattern of 2^exponent, at most that of infinity: magnitudes from there on do not fit.
/// For kUnsetExponent that of the smallest magnitude that is not zero.
[[nodiscard]] inline std::uint32_t overflow_pattern(std::int32_t exponent) {
  if (exponent == kUnsetExponent) {
    return 1;
  }
  const std::int32_t bounded = std::min(exponent, kExponentMax);
  return static_cast<std::uint32_t>(bounded + kFloatBias) << kFloatMantissaBits;
}

/// The smallest legal exponent above a magnitude; kUnsetExponent for zero.
[[nodiscard]] inline std::int32_t exponent_above(std::uint32_t magnitude_pattern) {
  if (magnitude_pattern == 0) {
    return kUnsetExponent;
  }
  const auto biased = static_cast<std::int32_t>(magnitude_pattern >> kFloatMantissaBits);
  return std::clamp(biased - kFloatBias + 1, kExponentMin, kExponentMax);
}

/// A power of two that is a normal float for every legal exponent and number of bits.
[[nodiscard]] inline float power_of_two(int power) {
  return std::ldexp(1.0F, power);
}

[[nodiscard]] inline bool legal_exponent(std::int32_t exponent) {
  return exponent >= kUnsetExponent && exponent <= kExponentMax;
}

}  // namespace mayfly::collectives::internal
