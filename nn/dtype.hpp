#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace mayfly::nn {

/// The type in which activations and their gradients are stored and multiplied. Weights, their
/// gradients, the optimizer and all statistics are always fp32, and products are summed in fp32.
enum class Dtype {
  kFp32,
  kBf16,  ///< bfloat16, rounded to nearest even
  kFp16,  ///< IEEE binary16, rounded to nearest even; GPUs only, with a loss scale
};

[[nodiscard]] constexpr std::size_t bytes_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? 4 : 2;
}

[[nodiscard]] constexpr const char* name_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? "fp32" : dtype == Dtype::kBf16 ? "bf16" : "fp16";
}

/// "fp32", "bf16" or "fp16"; kInvalidInput for another word.
[[nodiscard]] inline Result<Dtype> parse_dtype(const std::string& name) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    if (name == name_of(dtype)) {
      return dtype;
    }
  }
  return Error{Errc::kInvalidInput, "unknown dtype \"" + name + "\" (fp32, bf16 or fp16)"};
}

/// The dynamic loss scale of fp16 training (Micikevicius et al., Mixed Precision Training, 2018).
/// Gradients of activations are multiplied by a power of two where they are first computed, so that
/// small ones do not vanish below fp16's smallest number, and gradients of parameters are divided
/// by it where they become fp32. A power of two changes only exponents. A step whose gradients are
/// not finite is committed without an update, and the next one uses half the scale; after many
/// steps without such an event the scale is doubled. Pure: every member computes the same scale
/// from the same steps.
struct LossScale {
  /// As in PyTorch's GradScaler: the initial exponent, and the number of steps until it grows.
  static constexpr std::int32_t kStart = 16;
  static constexpr std::int32_t kGrowthInterval = 2000;
  /// A scale of 1. If gradients are not finite even then, a smaller scale cannot help.
  static constexpr std::int32_t kLeast = 0;
  /// As in Apex. fp16's smallest number is 2^-24, which is 2^-48 after division by this scale;
  /// smaller gradients do not matter.
  static constexpr std::int32_t kMost = 24;

  std::int32_t exponent = kStart;
  std::int32_t steps = 0;  ///< since the exponent last changed; below kGrowthInterval

  /// The factor of gradients of activations: 2^exponent.
  [[nodiscard]] float factor() const { return std::ldexp(1.0F, exponent); }
  [[nodiscard]] bool is_valid() const {
    return exponent >= kLeast && exponent <= kMost && steps >= 0 && steps < kGrowthInterval;
  }
  /// The scale of the step after one with this scale. `overflowed`: some gradient was not finite.
  /// Nothing if it overflowed with the least scale, which means that training has diverged.
  [[nodiscard]] std::optional<LossScale> after_step(bool overflowed) const {
    if (overflowed) {
      return exponent > kLeast ? std::optional(LossScale{exponent - 1, 0}) : std::nullopt;
    }
    return steps + 1 < kGrowthInterval ? LossScale{exponent, steps + 1}
                                       : LossScale{std::min(exponent + 1, kMost), 0};
  }

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

}  // namespace mayfly::nn
