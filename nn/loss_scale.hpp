#pragma once

// The dynamic loss scale of fp16 training (Micikevicius et al., Mixed Precision Training, 2018):
// gradients of activations are multiplied with a power of two where they come to be, so that small
// ones are not lost below fp16's smallest number, and gradients of parameters are divided by it
// where they become fp32. A power of two changes no digit. A step whose gradients are not finite
// takes place without an update, and the next one has half the scale; after many steps without such
// it is doubled. Pure: every member comes to the same scale from the same steps.

#include <cmath>
#include <cstdint>
#include <optional>

namespace mayfly::nn {

struct LossScale {
  /// As in PyTorch's GradScaler: where it begins, and steps until it grows.
  static constexpr std::int32_t kStart = 16;
  static constexpr std::int32_t kGrowthInterval = 2000;
  /// What is not finite without a scale is not the scale's fault.
  static constexpr std::int32_t kLeast = 0;
  /// As in Apex. fp16's smallest number is 2^-24, and 2^-48 once such a gradient has lost the
  /// scale: nothing that counts is smaller.
  static constexpr std::int32_t kMost = 24;

  std::int32_t exponent = kStart;
  std::int32_t steps = 0;  ///< since the exponent last changed; below kGrowthInterval

  /// What gradients of activations are times: 2^exponent.
  [[nodiscard]] float factor() const { return std::ldexp(1.0F, exponent); }
  [[nodiscard]] bool is_valid() const {
    return exponent >= kLeast && exponent <= kMost && steps >= 0 && steps < kGrowthInterval;
  }
  /// The scale of the step after one with this scale. `overflowed`: some gradient was not finite.
  /// Nothing if it was with the least scale: training has diverged.
  [[nodiscard]] std::optional<LossScale> after_step(bool overflowed) const;

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

}  // namespace mayfly::nn
