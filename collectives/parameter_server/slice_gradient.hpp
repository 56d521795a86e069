#pragma once

// The gradients of slices, and the mean that one update of a shard's parameters uses. Pure
// functions; any thread.

#include <cstddef>
#include <cstdint>
#include <span>

namespace mayfly::parameter_server {

/// A gradient of one slice, as it was pushed.
struct SliceGradient {
  std::span<const float> sum;      ///< over the slice's microbatches
  std::uint32_t microbatches = 0;  ///< in it
};

/// Elements of a mean that are computed at a time, so that they are still in the first-level cache
/// when they are used.
inline constexpr std::size_t kMeanBlock = 1024;

/// The elements from `first` on of the mean over all microbatches of these slices, of which there
/// is at least one: added in their order, each element rounded as if it were alone.
void mean_of(std::span<const SliceGradient> slices, std::size_t first, std::span<float> mean);

}  // namespace mayfly::parameter_server
