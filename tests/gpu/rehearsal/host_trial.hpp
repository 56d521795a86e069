#pragma once

// The trial of a convolution's engines on a GPU that is played on the CPU.

#include <cstddef>
#include <vector>

#include "nn/cuda/engine_choice.hpp"

namespace mayfly::nn::cuda {

/// Three engines for each convolution: the second is the fastest right one, the third is faster and
/// wrong; of a fused pass the first is unfused. One that `fails` cannot be computed.
class PretendedTrial final : public EngineTrial {
 public:
  PretendedTrial(ConvPass pass, bool fails) : pass_(pass), fails_(fails) {}
  [[nodiscard]] std::vector<EngineName> engines() const override {
    return {{is_fused(pass_) ? EngineName::kUnfused : 1, {}}, {2, {{4, 0}}}, {3, {}}};
  }
  Result<TrialResult> result(std::size_t engine) override {
    if (fails_) {
      return Error{Errc::kUnsupported, "cuDNN, computing a convolution: pretended"};
    }
    // Of a fused pass it is the sums that are wrong.
    const float found = engine == 2 ? 0.5F : 1.0F;
    return is_fused(pass_) ? TrialResult{{1.0F}, {1.0F, found}} : TrialResult{{1.0F, found}};
  }
  Result<double> microseconds(std::size_t engine) override {
    return 30.0 / static_cast<double>(1 + engine);
  }

 private:
  ConvPass pass_;
  bool fails_;
};

}  // namespace mayfly::nn::cuda
