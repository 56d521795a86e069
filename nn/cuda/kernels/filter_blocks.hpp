#pragma once

// Private to nn/cuda/kernels: which part of a filter a thread block moves.

#include <cstdint>

#include "base/host_device.hpp"
#include "nn/cuda/kernels/kernels.hpp"

namespace mayfly::nn::cuda {

inline constexpr std::uint32_t kFilterChannels = 128;  ///< input channels of one block
inline constexpr std::uint32_t kFilterKernelMax = 7;
inline constexpr std::uint32_t kFlatElements = 1024;  ///< elements of one block, where flat

/// A 1x1 filter is the same in either layout.
[[nodiscard]] MAYFLY_HOST_DEVICE constexpr bool is_flat(const Filter& filter) {
  return filter.kernel == 1 && filter.packed_channels == filter.in_channels;
}

/// Blocks for the input channels of one output channel.
[[nodiscard]] MAYFLY_HOST_DEVICE constexpr std::uint32_t channel_blocks(const Filter& filter) {
  return (filter.packed_channels + kFilterChannels - 1) / kFilterChannels;
}

[[nodiscard]] constexpr std::uint32_t blocks_of(const Filter& filter) {
  return is_flat(filter)
             ? (filter.out_channels * filter.in_channels + kFlatElements - 1) / kFlatElements
             : filter.out_channels * channel_blocks(filter);
}

}  // namespace mayfly::nn::cuda
