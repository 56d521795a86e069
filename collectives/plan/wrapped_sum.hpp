#pragma once

// The exact sum in 16 bits on the wire (ADR 12). Every microbatch's gradient is rounded to a
// coarser grid than in exact_sum.hpp, at random but with draws that belong to (seed, step,
// microbatch, element): no bias, no residual, and the same integers on every worker. From there on
// only integers are added, so any number of workers and any order give the same bits.
//
// Integers are added modulo 2^16, and modulo 2^32 on each worker. A partial sum may overflow: the
// result is still correct as long as the total is in [-2^15, 2^15). So the grid follows the total,
// not the largest microbatch times their number, which would cost a bit per doubling of the
// microbatches. A total that does overflow is detected: two weighted 32-bit checksums are sent with
// each block, and those of the wrapped total differ. One or two elements that overflow by one
// multiple of 2^16 are always detected, more of them with a probability of 1 - 2^-32.
//
// Pure functions with the same bits on every instruction set, like exact_sum.hpp.

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/plan/exact_sum.hpp"

namespace mayfly::collectives {

/// A block with exponent e represents totals from -2^e to below 2^e, in units of 2^(e - 15).
inline constexpr int kWrappedBits = 15;
/// Room above the largest total seen, a factor of sixteen: totals jump further from step to step
/// than the largest magnitude does, and what is left is still finer than the draws.
inline constexpr std::int32_t kWrappedHeadroomBits = 4;

/// The draws of one microbatch's rounding.
struct RoundingKey {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};
[[nodiscard]] RoundingKey rounding_key(std::uint64_t seed, std::uint64_t step,
                                       std::uint32_t microbatch);

/// acc[i] (+)= gradient[i] * 2^(15 - exponent), rounded up with the probability of its fraction
/// (within 2^-21) and down otherwise. `first`: number of the block's first element, which with the
/// key decides the draw. `bits`: magnitude_bits() of the number of microbatches. Overflow: some
/// magnitude is 2^bits units or more, so that int32 could wrap; infinities and NaNs included.
/// `observed` as quantize_add() has it: of this microbatch, not of a total.
[[nodiscard]] QuantizeResult round_add(std::span<const float> gradient, std::int32_t exponent,
                                       int bits, RoundingKey key, std::uint32_t first,
                                       Accumulate mode, std::span<std::int32_t> acc,
                                       std::int32_t& observed);

/// Weighted sums of a block modulo 2^32. Those of a total are the sums of those of its parts.
struct BlockCheck {
  std::uint32_t linear = 0;
  std::uint32_t mixed = 0;
  friend bool operator==(const BlockCheck&, const BlockCheck&) = default;
};

/// wire[i] = sum[i] modulo 2^16; returns the check of `sum`. At most kBlockElements.
[[nodiscard]] BlockCheck pack_wrapped(std::span<const std::int32_t> sum,
                                      std::span<std::int16_t> wire);

struct WrappedTotal {
  BlockCheck check;
  std::uint32_t largest = 0;  ///< magnitude, in units
};
/// Checksums and largest magnitude of a reduced block of at most kBlockElements.
[[nodiscard]] WrappedTotal inspect_wrapped(std::span<const std::int16_t> total);

/// The smallest exponent above a total of that magnitude; kUnsetExponent for zero.
[[nodiscard]] std::int32_t observed_total(std::uint32_t largest, std::int32_t exponent);

/// An exponent with which no total of `microbatches` leaves the range, given the largest exponent
/// that one of them needed. (One of 2^15 or more could if nearly all were rounded away from zero,
/// which is too unlikely to happen.)
[[nodiscard]] std::int32_t safe_exponent(std::int32_t observed, std::uint32_t microbatches);

/// Whether a microbatch that needs `observed` overflows round_add() with `exponent` and `bits`.
[[nodiscard]] bool too_large_to_round(std::int32_t observed, std::int32_t exponent, int bits);

/// out[i] = float(total[i]) * factor, with factor = 2^(exponent - 15) * scale.
void dequantize_wrapped(std::span<const std::int16_t> total, std::int32_t exponent, float scale,
                        std::span<float> out);

}  // namespace mayfly::collectives
