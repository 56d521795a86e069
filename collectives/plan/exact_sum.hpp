#pragma once

// Sums of gradients that do not depend on the order of addition. A flat gradient is cut into
// blocks; each block has a power-of-two exponent that all members share; every microbatch's
// gradient is rounded to integers on that grid on its own, and only integers are added from there
// on. Integer addition is associative, so any number of workers, any ring and any split of the
// microbatches give the same bits.
//
// Range: with b = magnitude_bits(M), one quantised value lies in [-2^b, 2^b] as long as its block
// did not overflow, so M of them lie in [-M 2^b, M 2^b], within [-2^30, 2^30] by the choice of b:
// neither the total nor any partial sum, in whatever order, leaves int32.
//
// Everything here is a pure function of its arguments, with the same bits on every instruction set;
// it does not depend on the thread's denormal modes, but on the default rounding mode (to nearest).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/plan/exact_sum_math.hpp"

namespace mayfly::collectives {

inline constexpr std::size_t kBlockElements = 1024;

/// Cut of a flat vector made of tensors into blocks of at most kBlockElements elements that never
/// cross a tensor border: magnitudes differ by orders between tensors, not much inside one.
class BlockLayout {
 public:
  /// `tensor_sizes`: elements of each tensor, in the order in which they make up the flat vector.
  explicit BlockLayout(const std::vector<std::size_t>& tensor_sizes);

  [[nodiscard]] std::size_t block_count() const { return offsets_.size() - 1; }
  [[nodiscard]] std::size_t element_count() const { return offsets_.back(); }
  /// First element of a block, block < block_count().
  [[nodiscard]] std::size_t offset(std::size_t block) const { return offsets_[block]; }
  [[nodiscard]] std::size_t size(std::size_t block) const {
    return offsets_[block + 1] - offsets_[block];
  }
  /// The block that starts at `element`, which must be a tensor border (or another block's start);
  /// block_count() for element_count().
  [[nodiscard]] std::size_t first_block_at(std::size_t element) const;

 private:
  std::vector<std::size_t> offsets_;  // of every block, and the end
};

/// Consecutive blocks: [first, last).
struct BlockRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

/// A block with exponent e represents magnitudes below 2^e. Smaller exponents than kExponentMin are
/// not used: there the scale would leave the range of normal floats. Values that small become zero.
inline constexpr std::int32_t kExponentMin = exact_sum_math::kLowestExponent;
/// Every finite float is below 2^128.
inline constexpr std::int32_t kExponentMax = exact_sum_math::kHighestExponent;
/// Nothing is known about the block yet: any non-zero value overflows, and so calibrates it.
inline constexpr std::int32_t kUnsetExponent = exact_sum_math::kNoExponent;

/// Whether a block may have this exponent.
[[nodiscard]] constexpr bool is_legal_exponent(std::int32_t exponent) {
  return exponent >= kUnsetExponent && exponent <= kExponentMax;
}
/// Room that next_exponent() leaves above the largest magnitude seen: a factor of sixteen. With
/// less, magnitudes that jump between steps overflow, and the step is computed twice
/// (docs/benchmarks.md).
inline constexpr std::int32_t kHeadroomBits = 4;
/// Exponents fall by at most one every so many steps. If they fell in every step, blocks whose
/// largest magnitude jumps about overflowed again and again, a few of 25,000 at a time, and each
/// time the whole step was computed twice (docs/benchmarks.md).
inline constexpr std::uint64_t kDecayInterval = 8;
/// Upper limit of microbatches in one sum.
inline constexpr std::uint32_t kMicrobatchesMax = 1U << 16;

struct QuantizeResult {
  bool overflow = false;   ///< some magnitude was 2^exponent or more (infinities and NaNs included)
  bool nonfinite = false;  ///< some value was infinite or not a number
};

/// Bits of magnitude that one microbatch may use so that `microbatches` (1 .. kMicrobatchesMax) of
/// them cannot overflow int32 when added: 30 - ceil(log2(microbatches)).
[[nodiscard]] int magnitude_bits(std::uint32_t microbatches);

/// Whether a microbatch is the first of a sum, whose old content does not matter.
enum class Accumulate : std::uint8_t { kStore, kAdd };

/// acc[i] += round_to_nearest_even(gradient[i] * 2^(bits - exponent)). After an overflow the
/// content of `acc` is unspecified (and useless); the flags and `observed` are exact in any case.
/// `observed`: the smallest exponent, within [kExponentMin, kExponentMax], above all magnitudes;
/// kUnsetExponent if all are zero. Both spans have the same size; bits is from magnitude_bits().
[[nodiscard]] QuantizeResult quantize_add(std::span<const float> gradient, std::int32_t exponent,
                                          int bits, std::span<std::int32_t> acc,
                                          std::int32_t& observed,
                                          Accumulate mode = Accumulate::kAdd);

/// out[i] = float(sum[i]) * factor, with factor = 2^(exponent - bits) * scale, each rounded to
/// nearest; a factor below the smallest normal float counts as zero. `exponent` may be
/// kUnsetExponent.
void dequantize(std::span<const std::int32_t> sum, std::int32_t exponent, int bits, float scale,
                std::span<float> out);

/// Whether an exponent may be lower after a step than in it.
enum class Decay : std::uint8_t { kNo, kByOne };
[[nodiscard]] constexpr Decay decay_after(std::uint64_t step) {
  return step % kDecayInterval == 0 ? Decay::kByOne : Decay::kNo;
}

/// The exponent for the next step, from the present one and the one observed in this step (the
/// largest over all microbatches): `headroom` above what was seen, but never below previous, or
/// previous - 1. The slow decay keeps a block that is quiet for some steps from overflowing in the
/// next.
[[nodiscard]] std::int32_t next_exponent(std::int32_t previous, std::int32_t observed, Decay decay,
                                         std::int32_t headroom = kHeadroomBits);

}  // namespace mayfly::collectives
