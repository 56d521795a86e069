#pragma once

// 16-bit floats on the wire: IEEE binary16 (fp16) and bfloat16 (bf16), as bit patterns. Every
// conversion to 16 bits rounds to nearest, ties to even; overflow becomes infinity, NaN stays NaN.
// Same bits on every instruction set. Pure; spans of one call have equal sizes.

#include <cstdint>
#include <span>

namespace mayfly::collectives {

void to_fp16(std::span<const float> from, std::span<std::uint16_t> to);
void to_bf16(std::span<const float> from, std::span<std::uint16_t> to);
void from_fp16(std::span<const std::uint16_t> from, std::span<float> to);
void from_bf16(std::span<const std::uint16_t> from, std::span<float> to);

/// dst[i] = round(dst[i] + src[i]), added in fp32.
void add_fp16(std::span<std::uint16_t> dst, std::span<const std::uint16_t> src);
void add_bf16(std::span<std::uint16_t> dst, std::span<const std::uint16_t> src);

}  // namespace mayfly::collectives
