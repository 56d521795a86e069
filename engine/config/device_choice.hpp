#pragma once

// The setting `device`, understood. Pure.

#include <optional>
#include <string>

#include "base/result.hpp"

namespace mayfly::engine {

struct DeviceChoice {
  bool is_cuda = false;
  std::optional<int> number = {};  ///< of the GPU; not set: the worker finds one
};

/// "cpu", "cuda" or "cuda:N"; kInvalidInput for anything else.
[[nodiscard]] Result<DeviceChoice> parse_device(const std::string& text);

/// Whether a valid setting means GPUs.
[[nodiscard]] bool uses_cuda(const std::string& device);

}  // namespace mayfly::engine
