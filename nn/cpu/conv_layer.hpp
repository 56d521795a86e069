#pragma once

// Private to nn/cpu: one bias-free convolution, all three passes, by oneDNN. Activations are
// blocked (nChw16c or nChw8c) except a 3-channel input, which is plain NCHW; weights enter and
// gradients leave in the flat OIHW layout of nn/model.hpp.

#include <oneapi/dnnl/dnnl.hpp>

#include "nn/cpu/arena.hpp"
#include "nn/cpu/dnnl_call.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cpu {

/// What the layers of one engine share.
struct ConvContext {
  dnnl::engine engine;
  dnnl::stream stream;
  int images = 0;  ///< of a microbatch
  int block = 0;   ///< channels per block
};

/// Where a layer's activations live; fixed for the life of the engine.
struct ConvBuffers {
  float* source = nullptr;
  float* destination = nullptr;
  float* destination_gradient = nullptr;
  float* source_gradient = nullptr;  ///< null: not wanted (the images have no gradient)
  void* scratchpad = nullptr;        ///< shared by all layers of the engine
};

class ConvLayer {
 public:
  /// Builds the primitives and reserves room for weights. Throws dnnl::error.
  ConvLayer(const ConvContext& context, const ConvSpec& spec, bool has_source_gradient,
            Arena& arena);

  /// Bytes of scratchpad that any of the passes needs.
  [[nodiscard]] std::size_t scratchpad_bytes() const { return scratchpad_bytes_; }

  /// Prepares all calls; the arena has been allocated.
  void bind(Arena& arena, const ConvBuffers& buffers);

  /// Brings flat weights into the layouts of the passes.
  void load_weights(const float* weights);

  void forward() const { forward_.run(context_.stream); }
  void backward_data() const { backward_data_.run(context_.stream); }
  /// Overwrites `gradient`.
  void backward_weights(float* gradient);

 private:
  using Forward = dnnl::convolution_forward;
  using BackwardData = dnnl::convolution_backward_data;
  using BackwardWeights = dnnl::convolution_backward_weights;

  [[nodiscard]] dnnl::memory memory(const dnnl::memory::desc& desc, void* data) const {
    return {desc, context_.engine, data};
  }
  void bind_passes(const ConvBuffers& buffers);
  void bind_reorders();

  const ConvContext& context_;
  bool has_source_gradient_;
  dnnl::memory::desc flat_weights_desc_;
  Forward::primitive_desc forward_desc_;
  BackwardData::primitive_desc backward_data_desc_;
  BackwardWeights::primitive_desc backward_weights_desc_;
  std::size_t scratchpad_bytes_ = 0;

  Arena::Slot weights_slot_{};
  Arena::Slot backward_weights_slot_{};
  Arena::Slot weight_gradient_slot_{};

  dnnl::memory flat_weights_;   ///< points at the caller's array during load_weights
  dnnl::memory flat_gradient_;  ///< points at the caller's array during backward_weights
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
