#include "nn/cpu/convolution.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "nn/cpu/winograd.hpp"

namespace mayfly::nn::cpu {
namespace {

// Transformed weights need four times as much memory. Wide layers have few pixels for so many
// weights, but so much work per pixel that transforming the weights anew in each pass did not
// change ResNet-18's rate (within 4 %, the noise of those runs), and it saves hundreds of megabytes
// per compute thread.
constexpr std::size_t kKeptChannelsMax = 128;

class WinogradConv final : public Convolution {
 public:
  WinogradConv(const ConvContext& context, const ConvSpec& spec, const ConvUse& use,
               MemoryPlan& plan)
      : kernels_(winograd_for(context.isa, context.dtype)),
        shape_{.images = static_cast<std::size_t>(context.images),
               .in_channels = static_cast<std::size_t>(spec.in_channels),
               .out_channels = static_cast<std::size_t>(spec.out_channels),
               .size = static_cast<std::size_t>(spec.input_size)},
        keeps_transformed_(std::max(shape_.in_channels, shape_.out_channels) <= kKeptChannelsMax) {
    ENSURE(use.has_source_gradient, "images have too few channels for this kernel");
    if (keeps_transformed_) {
      weights_id_ =
          plan.add_floats(use.name + " transformed", shape_.weight_floats(), use.whole_step);
      backward_weights_id_ = plan.add_floats(use.name + " transformed for backward",
                                             shape_.weight_floats(), use.whole_step);
    } else {
      weights_id_ = plan.add_floats(use.name, shape_.flat_weight_floats(), use.whole_step);
    }
  }

  std::size_t scratch_bytes() const override {
    const std::size_t weights = shape_.weight_floats() * (keeps_transformed_ ? 1 : 2);
    return (shape_.scratch_floats() + weights) * sizeof(float);
  }

  void bind(Arena& arena, void* scratch) override {
    weights_ = arena.floats(weights_id_);
    weight_sums_ = static_cast<float*>(scratch);
    scratch_ = weight_sums_ + shape_.weight_floats();
    if (keeps_transformed_) {
      backward_weights_ = arena.floats(backward_weights_id_);
    } else {
      transformed_ = scratch_;
      scratch_ += shape_.weight_floats();
    }
  }

  void load_weights(const float* weights) override {
    if (!keeps_transformed_) {
      std::copy_n(weights, shape_.flat_weight_floats(), weights_);
      return;
    }
    kernels_.transform_weights(shape_, weights, weights_);
    kernels_.transform_weights_for_backward(shape_, weights, backward_weights_);
  }

  void forward(const ActivationRead& from, const ActivationWrite& to) override {
    kernels_.forward(shape_, from, forward_weights(), to, scratch_);
  }

  void backward(const ActivationRead& from, const GradientRead& gradient, const GradientWrite* to,
                float* weight_gradient) override {
    ENSURE(to != nullptr, "the input has a gradient");
    kernels_.backward(shape_, from, gradient, backward_weights(), *to, weight_sums_,
                      weight_gradient, scratch_);
  }

 private:
  [[nodiscard]] const float* forward_weights() {
    if (!keeps_transformed_) {
      kernels_.transform_weights(shape_, weights_, transformed_);
    }
    return keeps_transformed_ ? weights_ : transformed_;
  }

  [[nodiscard]] const float* backward_weights() {
    if (!keeps_transformed_) {
      kernels_.transform_weights_for_backward(shape_, weights_, transformed_);
    }
    return keeps_transformed_ ? backward_weights_ : transformed_;
  }

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

}  // namespace

std::unique_ptr<Convolution> make_winograd_conv(const ConvContext& context, const ConvSpec& spec,
                                                const ConvUse& use, MemoryPlan& plan) {
  return std::make_unique<WinogradConv>(context, spec, use, plan);
}

}  // namespace mayfly::nn::cpu
