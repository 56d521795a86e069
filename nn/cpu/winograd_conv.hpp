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
  [[nodiscard]] const float* forward_weights();
  [[nodiscard]] const float* backward_weights();

  const WinogradKernels& kernels_;
  WinogradShape shape_;
  bool keeps_transformed_;
  TensorId weights_id_ = kNoTensor;
  TensorId backward_weights_id_ = kNoTensor;
  float* weights_ = nullptr;           ///< transformed for forward, or flat if those are not kept
  float* backward_weights_ = nullptr;  ///< transformed for backward, if kept
  // In the shared memory:
  float* weight_sums_ = nullptr;
  float* transformed_ = nullptr;  ///< weights of the running pass, if not kept
  float* scratch_ = nullptr;
};

}  // namespace mayfly::nn::cpu
