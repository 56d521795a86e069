#pragma once

// Private to nn/cpu: a convolution by nn/cpu/winograd.hpp.

#include "nn/cpu/convolution.hpp"
#include "nn/cpu/winograd.hpp"

namespace mayfly::nn::cpu {

class WinogradConv final : public Convolution {
 public:
  WinogradConv(const ConvContext& context, const ConvSpec& spec, const ConvUse& use,
               MemoryPlan& plan);

  [[nodiscard]] std::size_t scratch_bytes() const override;
  void bind(Arena& arena, void* scratch) override;
  void load_weights(const float* weights) override;
  void forward(const ActivationRead& from, const ActivationWrite& to) override;
  void backward(const ActivationRead& from, const GradientRead& gradient, const GradientWrite* to,
                float* weight_gradient) override;

 private:
  const WinogradKernels& kernels_;
  WinogradShape shape_;
  TensorId weights_id_;
  TensorId backward_weights_id_;
  float* weights_ = nullptr;           ///< transformed for forward
  float* backward_weights_ = nullptr;  ///< and for backward
  float* weight_sums_ = nullptr;       ///< in the shared memory
  float* scratch_ = nullptr;
};

}  // namespace mayfly::nn::cpu
