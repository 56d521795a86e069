#pragma once

// Private to nn/cpu: a convolution by oneDNN's direct kernels. Activations are blocked (nChw16c or
// nChw8c) except a 3-channel input, which is plain NCHW. oneDNN knows nothing of our norms, so the
// rest of the port's operations are passes before and after it.

#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

#include "nn/cpu/convolution.hpp"

namespace mayfly::nn::cpu {

/// A oneDNN primitive together with its arguments, ready to run again and again.
/// dnnl::primitive::execute builds its argument list on the heap each time; this does it once.
class DnnlCall {
 public:
  DnnlCall() = default;
  DnnlCall(dnnl::primitive primitive,
           std::initializer_list<std::pair<int, dnnl::memory>> arguments);

  void run(const dnnl::stream& stream) const;

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;  ///< keeps the handles in arguments_ alive
  std::vector<dnnl_exec_arg_t> arguments_;
};

class DirectConv final : public Convolution {
 public:
  /// Throws dnnl::error.
  DirectConv(const ConvContext& context, const ConvSpec& spec, const ConvUse& use,
             MemoryPlan& plan);

  [[nodiscard]] std::size_t scratch_bytes() const override { return scratchpad_bytes_; }
  void bind(Arena& arena, void* scratch) override;
  void load_weights(const float* weights) override;
  void forward(const ActivationRead& from, const ActivationWrite& to) override;
  void backward(const ActivationRead& from, const GradientRead& gradient, const GradientWrite* to,
                float* weight_gradient) override;

 private:
  using Forward = dnnl::convolution_forward;
  using BackwardData = dnnl::convolution_backward_data;
  using BackwardWeights = dnnl::convolution_backward_weights;

  [[nodiscard]] dnnl::memory memory(const dnnl::memory::desc& desc, void* data) const {
    return {desc, context_.engine, data};
  }
  void plan_memory(const ConvUse& use, MemoryPlan& plan);
  void bind_passes();
  void bind_reorders();
  /// The output's gradient as oneDNN can read it.
  const void* plain(const GradientRead& gradient);

  const ConvContext& context_;
  bool has_source_gradient_;
  BlockedShape source_shape_;
  BlockedShape destination_shape_;
  dnnl::memory::desc flat_weights_desc_;
  Forward::primitive_desc forward_desc_;
  BackwardData::primitive_desc backward_data_desc_;
  BackwardWeights::primitive_desc backward_weights_desc_;
  std::size_t scratchpad_bytes_ = 0;

  TensorId weights_id_ = kNoTensor;
  TensorId backward_weights_id_ = kNoTensor;
  TensorId weight_gradient_id_ = kNoTensor;
  TensorId active_id_ = kNoTensor;
  TensorId plain_gradient_id_ = kNoTensor;
  void* active_ = nullptr;          ///< input after norm and ReLU, kept for backward
  void* plain_gradient_ = nullptr;  ///< output's gradient before the norm

  // They point at the caller's arrays, call by call.
  dnnl::memory source_;
  dnnl::memory destination_;
  dnnl::memory destination_gradient_;
  dnnl::memory source_gradient_;
  dnnl::memory flat_weights_;
  dnnl::memory flat_gradient_;

  dnnl::memory scratchpad_;
  dnnl::memory weights_;
  dnnl::memory weights_for_backward_;
  dnnl::memory weight_gradient_;
  DnnlCall forward_;
  DnnlCall backward_data_;
  DnnlCall backward_weights_;
  DnnlCall load_;
  DnnlCall load_for_backward_;
  DnnlCall unload_gradient_;
};

}  // namespace mayfly::nn::cpu
