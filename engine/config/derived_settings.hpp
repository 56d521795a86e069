#pragma once

// Settings whose text has a structure: the device, traced steps, bucket sizes and wire formats.
// Pure; no thread matters.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mayfly::engine {

/// The traced steps of a view, counted from its first step, which is 0; without the step `last`.
struct TraceWindow {
  std::uint64_t first = 0;
  std::uint64_t last = 50;
};

/// "A:B" with A < B; anything else is kInvalidInput.
[[nodiscard]] Result<TraceWindow> parse_trace_window(std::string_view text);

/// The size of the messages into which a step's gradients are divided.
struct BucketSize {
  bool tuned = false;        ///< chosen by trials in the first steps, from `elements` on
  std::size_t elements = 0;  ///< of four bytes in memory, at least, whatever the wire carries
};

/// A number of KiB from 4 to 1048576, or "auto"; anything else is kInvalidInput.
[[nodiscard]] Result<BucketSize> parse_bucket_kib(std::string_view text);

/// The format of parameters' gradients on the wire. Loss and statistics always have 32 bits.
enum class Wire : std::uint8_t { kInt32, kInt16, kFp32, kBf16, kFp16 };

/// The wire that --wire names for this --reduction; kInvalidInput if they do not go together.
[[nodiscard]] Result<Wire> parse_wire(std::string_view wire, std::string_view reduction);
[[nodiscard]] const char* name_of(Wire wire);
/// Whether sums are of integers, and so do not depend on the order of additions.
[[nodiscard]] bool is_exact(Wire wire);

struct DeviceChoice {
  bool is_cuda = false;
  std::optional<int> number = {};  ///< of the GPU; not set: the worker finds one
};

/// "cpu", "cuda" or "cuda:N"; kInvalidInput for anything else.
[[nodiscard]] Result<DeviceChoice> parse_device(const std::string& text);

/// Whether a valid setting means GPUs.
[[nodiscard]] bool uses_cuda(const std::string& device);

}  // namespace mayfly::engine
