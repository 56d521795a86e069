#pragma once

// Private to nn/cpu: the port between the network and the two ways to compute a convolution. Both
// read and write as described in nn/cpu/kernels.hpp; one of them does so without extra passes.

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "nn/cpu/conv_kernel.hpp"
#include "nn/cpu/kernels.hpp"
#include "nn/memory_plan.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cpu {

/// The parts that the layers of one engine share.
struct ConvContext {
  Isa isa = Isa::kAvx2;
  Dtype dtype = Dtype::kFp32;
  const Kernels* kernels = nullptr;
  dnnl::engine engine;
  dnnl::stream stream;
  int images = 0;  ///< of a microbatch
  int block = 0;   ///< channels per block
};

/// How the network uses a convolution.
struct ConvUse {
  std::string name{};               ///< of its weights
  bool has_source_gradient = true;  ///< false: the images have no gradient
  bool reads_through_norm = false;  ///< its input is read through norm and ReLU
  int forward_time = 0;             ///< positions in the step, for the memory plan
  int backward_time = 0;
  Lifetime whole_step{};
};

class Convolution {
 public:
  virtual ~Convolution() = default;

  /// Bytes of shared working memory that any of its passes needs.
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
  /// Before the first pass: its own memory and the shared one.
  virtual void bind(Arena& arena, void* scratch) = 0;

  /// Converts flat weights (OIHW) to the layouts of the passes.
  virtual void load_weights(const float* weights) = 0;
  virtual void forward(const ActivationRead& from, const ActivationWrite& to) = 0;
  /// Writes the flat weight gradient and, unless `to` is null, the input's gradient. `from` is the
  /// same as in forward().
  virtual void backward(const ActivationRead& from, const GradientRead& gradient,
                        const GradientWrite* to, float* weight_gradient) = 0;
};

// Both plan the convolution's memory, and keep a reference to `context`. They throw dnnl::error.

/// Computes with oneDNN's direct kernels. Activations are blocked (nChw16c or nChw8c) except a
/// 3-channel input, which is plain NCHW. oneDNN does not support Mayfly's norms, so the other
/// operations of the port are passes before and after it.
[[nodiscard]] std::unique_ptr<Convolution> make_direct_conv(const ConvContext& context,
                                                            const ConvSpec& spec,
                                                            const ConvUse& use, MemoryPlan& plan);
/// Computes with Winograd's algorithm (nn/cpu/winograd.hpp), without extra passes.
[[nodiscard]] std::unique_ptr<Convolution> make_winograd_conv(const ConvContext& context,
                                                              const ConvSpec& spec,
                                                              const ConvUse& use, MemoryPlan& plan);

}  // namespace mayfly::nn::cpu
