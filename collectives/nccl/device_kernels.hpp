#pragma once

// Our own CUDA kernels: the exact sum of gradients (collectives/plan/exact_sum, the same bits) and
// the order of floats as integers. All functions give work to a stream and do not wait for it.
// They return 0 or a cudaError_t; a stream is a cudaStream_t. The calling thread must be bound to
// the device; any thread.

#include <cstddef>
#include <cstdint>

namespace mayfly::collectives::device_kernels {

/// Loads all kernels. Otherwise the first launch of a kernel would wait for all running work.
[[nodiscard]] int load();

/// Counts of a step's quantisation; to be set to zero before the step.
struct QuantizeFlags {
  std::uint32_t overflows = 0;  ///< blocks that did not fit their exponent
  std::uint32_t nonfinite = 0;  ///< blocks with an infinity or NaN
};

/// Blocks of a flat vector, cut by BlockLayout, and their exponents. Device memory.
struct Blocks {
  const std::uint32_t* offsets = nullptr;   ///< offsets of all blocks, and the end
  const std::int32_t* exponents = nullptr;  ///< exponents of all blocks
  std::uint32_t first = 0;                  ///< the blocks of one bucket: [first, last)
  std::uint32_t last = 0;
};

/// Rounds one microbatch's part of a bucket to the blocks' grids and adds it to the sums; with
/// `add` false it is stored, so that the first microbatch of a step needs no cleared sums. The same
/// as quantize_add() for every block, fused with the copy into `sums`. `gradient` and `sums` are
/// whole flat vectors. `observed` has one entry per block, which is raised to the exponent that
/// this microbatch needs (with `add` false: set). `flags` is added to. All are device memory.
/// `bits` is from magnitude_bits(). Calls with the same `sums` must use one stream, because nothing
/// else orders the microbatches.
[[nodiscard]] int quantize(const float* gradient, const Blocks& blocks, int bits, bool add,
                           std::int32_t* sums, std::int32_t* observed, QuantizeFlags* flags,
                           void* stream);

/// The same for plain sums of floats: sums[i] += gradient[i], or with `add` false 0 + gradient[i],
/// as engine's GradientSums adds them. Blocks need no exponents; `flags` counts blocks that are not
/// finite.
[[nodiscard]] int add_floats(const float* gradient, const Blocks& blocks, bool add, float* sums,
                             QuantizeFlags* flags, void* stream);

/// out[i] = float(sums[i]) * factor of its block, as dequantize(). May be in place.
[[nodiscard]] int dequantize(const std::int32_t* sums, const Blocks& blocks, int bits, float scale,
                             float* out, void* stream);

/// The same of plain sums: out[i] = sums[i] * scale. Blocks need no exponents. May be in place.
[[nodiscard]] int scale_floats(const float* sums, const Blocks& blocks, float scale, float* out,
                               void* stream);

/// Turns floats in place into integers that order as the floats do (with -0 below +0 and any NaN
/// above all, as one fixed NaN), and back.
[[nodiscard]] int to_ordered_integers(void* data, std::size_t count, void* stream);
[[nodiscard]] int from_ordered_integers(void* data, std::size_t count, void* stream);

}  // namespace mayfly::collectives::device_kernels
