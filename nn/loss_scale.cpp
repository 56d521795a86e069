#include "nn/loss_scale.hpp"

#include <algorithm>

namespace mayfly::nn {

std::optional<LossScale> LossScale::after_step(bool overflowed) const {
  if (overflowed) {
    return exponent > kLeast ? std::optional(LossScale{exponent - 1, 0}) : std::nullopt;
  }
  return steps + 1 < kGrowthInterval ? LossScale{exponent, steps + 1}
                                     : LossScale{std::min(exponent + 1, kMost), 0};
}

}  // namespace mayfly::nn
