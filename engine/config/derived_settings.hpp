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

/// Steps of a view that are traced: counted from the view's first, which is 0; `last` is not.
struct TraceWindow {
  std::uint64_t first = 0;
  std::uint64_t last = 50;
};

/// "A:B" with A < B; anything else is kInvalidInput.
[[nodiscard]] Result<TraceWindow> parse_trace_window(std::string_view text);

/// How large the messages are that a step's gradients are cut into.
struct BucketSize {
  bool tuned = false;        ///< tried out in the first steps, starting with `elements`
  std::size_t elements = 0;  ///< of four bytes in memory, at least, whatever the wire carries
};

/// A number of KiB from 4 to 1048576, or "auto"; anything else is kInvalidInput.
[[nodiscard]] Result<BucketSize> parse_bucket_kib(std::string_view text);

/// What the gradients of parameters are on their way. Loss and statistics always have 32 bits.
enum class Wire : std::uint8_t { kInt32, kInt16, kFp32, kBf16, kFp16 };

/// The wire that --wire names for this --reduction; kInvalidInput if they do not go together.
[[nodiscard]] Result<Wire> parse_wire(std::string_view wire, std::string_view reduction);
[[nodiscard]] const char* name_of(Wire wire);
/// Integer sums, which do not depend on who adds what.
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
