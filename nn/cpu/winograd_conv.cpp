#include "nn/cpu/winograd_conv.hpp"

#include "base/check.hpp"

namespace mayfly::nn::cpu {

WinogradConv::WinogradConv(const ConvContext& context, const ConvSpec& spec, const ConvUse& use,
                           MemoryPlan& plan)
    : kernels_(winograd_for(context.isa, context.dtype)),
      shape_{.images = static_cast<std::size_t>(context.images),
             .in_channels = static_cast<std::size_t>(spec.in_channels),
             .out_channels = static_cast<std::size_t>(spec.out_channels),
             .size = static_cast<std::size_t>(spec.input_size)},
      weights_id_(
          plan.add_floats(use.name + " transformed", shape_.weight_floats(), use.whole_step)),
      backward_weights_id_(plan.add_floats(use.name + " transformed for backward",
                                           shape_.weight_floats(), use.whole_step)) {
  ENSURE(use.has_source_gradient, "images have too few channels for this kernel");
}

std::size_t WinogradConv::scratch_bytes() const {
  return (shape_.scratch_floats() + shape_.weight_floats()) * sizeof(float);
}

void WinogradConv::bind(Arena& arena, void* scratch) {
  weights_ = arena.floats(weights_id_);
  backward_weights_ = arena.floats(backward_weights_id_);
  weight_sums_ = static_cast<float*>(scratch);
  scratch_ = weight_sums_ + shape_.weight_floats();
}

void WinogradConv::load_weights(const float* weights) {
  kernels_.transform_weights(shape_, weights, weights_);
  kernels_.transform_weights_for_backward(shape_, weights, backward_weights_);
}

void WinogradConv::forward(const ActivationRead& from, const ActivationWrite& to) {
  kernels_.forward(shape_, from, weights_, to, scratch_);
}

void WinogradConv::backward(const ActivationRead& from, const GradientRead& gradient,
                            const GradientWrite* to, float* weight_gradient) {
  ENSURE(to != nullptr, "the input has a gradient");
  kernels_.backward(shape_, from, gradient, backward_weights_, *to, weight_sums_, weight_gradient,
                    scratch_);
}

}  // namespace mayfly::nn::cpu
