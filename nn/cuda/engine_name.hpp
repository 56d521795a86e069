#pragma once

// Private to nn/cuda: which of cuDNN's engines computes a convolution, as a value and as a word.
// Pure.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mayfly::nn::cuda {

/// cuDNN's number of an engine for an operation (its global index), and what its knobs are set to,
/// in cuDNN's order. Both mean something for one version of cuDNN only.
struct EngineName {
  /// In place of an engine for a fused pass (ConvPass): its parts are computed one by one.
  static constexpr std::int64_t kUnfused = -1;

  std::int64_t index = 0;
  std::vector<std::pair<std::int32_t, std::int64_t>>
      knobs;  ///< type (cudnnBackendKnobType_t), value

  [[nodiscard]] bool is_unfused() const { return index == kUnfused; }

  /// As cuDNN writes it: "eng34_k2=2_k3=0"; or "unfused".
  [[nodiscard]] std::string text() const;
  /// The same back; kCorrupt, in one line, for anything else.
  [[nodiscard]] static Result<EngineName> parse(std::string_view text);

  auto operator<=>(const EngineName&) const = default;
};

}  // namespace mayfly::nn::cuda
