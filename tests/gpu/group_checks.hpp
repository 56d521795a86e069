#pragma once

// Operations of a DeviceGroup with known data, checked element by element. Every member calls the
// same check; each call returns "right" or a description of the error.

#include <string>

#include "collectives/group.hpp"

namespace mayfly::collectives::gpu_test {

inline constexpr const char* kRight = "right";

/// A deadline that only a hang can reach.
[[nodiscard]] inline Instant far() {
  return monotonic_now() + seconds(100);
}

/// All operations, types and shapes of the port that NCCL carries, at several sizes.
[[nodiscard]] std::string check_operations(DeviceGroup& group);
/// An all-reduce of `count` int32.
[[nodiscard]] std::string check_sum(DeviceGroup& group, std::size_t count);
/// Checks follow(): the group sums data that a slow stream produces.
[[nodiscard]] std::string check_streams(DeviceGroup& group);

}  // namespace mayfly::collectives::gpu_test
