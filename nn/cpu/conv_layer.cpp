#include "nn/cpu/conv_layer.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace mayfly::nn::cpu {
namespace {

using dnnl::memory;

constexpr auto kFloat = memory::data_type::f32;
constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

/// The tensors of one convolution. Activations have the layout of our own kernels; weights are left
/// to oneDNN, pass by pass.
struct ConvDescs {
  memory::desc source;
  memory::desc destination;
  memory::desc weights;
  memory::dims strides;
  memory::dims padding;
};

memory::desc activation(const ConvContext& context, memory::dims dims) {
  using Tag = memory::format_tag;
  const bool blocked = dims[1] % context.block == 0;
  const Tag tag = !blocked ? Tag::nchw : context.block == 16 ? Tag::nChw16c : Tag::nChw8c;
  return {std::move(dims), kFloat, tag};
}

memory::dims weight_dims(const ConvSpec& spec) {
  return {spec.out_channels, spec.in_channels, spec.kernel, spec.kernel};
}

ConvDescs describe(const ConvContext& context, const ConvSpec& spec) {
  const int output_size = (spec.input_size + 2 * spec.padding - spec.kernel) / spec.stride + 1;
  return {.source = activation(
              context, {context.images, spec.in_channels, spec.input_size, spec.input_size}),
          .destination =
              activation(context, {context.images, spec.out_channels, output_size, output_size}),
          .weights = {weight_dims(spec), kFloat, memory::format_tag::any},
          .strides = {spec.stride, spec.stride},
          .padding = {spec.padding, spec.padding}};
}

}  // namespace

ConvLayer::ConvLayer(const ConvContext& context, const ConvSpec& spec, bool has_source_gradient,
                     Arena& arena)
    : context_(context),
      has_source_gradient_(has_source_gradient),
      flat_weights_desc_(weight_dims(spec), kFloat, memory::format_tag::oihw) {
  const ConvDescs d = describe(context, spec);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  forward_desc_ = {{dnnl::prop_kind::forward_training, kAlgorithm, d.source, d.weights,
                    d.destination, d.strides, d.padding, d.padding},
                   attributes,
                   context.engine};
  backward_weights_desc_ = {
      {kAlgorithm, d.source, d.weights, d.destination, d.strides, d.padding, d.padding},
      attributes,
      context.engine,
      forward_desc_};
  scratchpad_bytes_ = std::max(forward_desc_.scratchpad_desc().get_size(),
                               backward_weights_desc_.scratchpad_desc().get_size());
  weights_slot_ = arena.reserve(forward_desc_.weights_desc().get_size());
  weight_gradient_slot_ = arena.reserve(backward_weights_desc_.diff_weights_desc().get_size());
  if (has_source_gradient) {
    backward_data_desc_ = {
        {kAlgorithm, d.source, d.weights, d.destination, d.strides, d.padding, d.padding},
        attributes,
        context.engine,
        forward_desc_};
    scratchpad_bytes_ =
        std::max(scratchpad_bytes_, backward_data_desc_.scratchpad_desc().get_size());
    backward_weights_slot_ = arena.reserve(backward_data_desc_.weights_desc().get_size());
  }
}

void ConvLayer::bind(Arena& arena, const ConvBuffers& buffers) {
  ENSURE((buffers.source_gradient != nullptr) == has_source_gradient_,
         "the passes were chosen when the layer was built");
  weights_ = memory(forward_desc_.weights_desc(), arena.at(weights_slot_));
  weight_gradient_ =
      memory(backward_weights_desc_.diff_weights_desc(), arena.at(weight_gradient_slot_));
  flat_weights_ = memory(flat_weights_desc_, nullptr);
  flat_gradient_ = memory(flat_weights_desc_, nullptr);
  if (has_source_gradient_) {
    weights_for_backward_ =
        memory(backward_data_desc_.weights_desc(), arena.at(backward_weights_slot_));
  }
  bind_passes(buffers);
  bind_reorders();
}

void ConvLayer::bind_passes(const ConvBuffers& buffers) {
  const auto source = memory(forward_desc_.src_desc(), buffers.source);
  const auto gradient =
      memory(backward_weights_desc_.diff_dst_desc(), buffers.destination_gradient);
  forward_ = DnnlCall(
      Forward(forward_desc_),
      {{DNNL_ARG_SRC, source},
       {DNNL_ARG_WEIGHTS, weights_},
       {DNNL_ARG_DST, memory(forward_desc_.dst_desc(), buffers.destination)},
       {DNNL_ARG_SCRATCHPAD, memory(forward_desc_.scratchpad_desc(), buffers.scratchpad)}});
  backward_weights_ =
      DnnlCall(BackwardWeights(backward_weights_desc_),
               {{DNNL_ARG_SRC, source},
                {DNNL_ARG_DIFF_DST, gradient},
                {DNNL_ARG_DIFF_WEIGHTS, weight_gradient_},
                {DNNL_ARG_SCRATCHPAD,
                 memory(backward_weights_desc_.scratchpad_desc(), buffers.scratchpad)}});
  if (has_source_gradient_) {
    backward_data_ = DnnlCall(
        BackwardData(backward_data_desc_),
        {{DNNL_ARG_DIFF_DST, gradient},
         {DNNL_ARG_WEIGHTS, weights_for_backward_},
         {DNNL_ARG_DIFF_SRC, memory(backward_data_desc_.diff_src_desc(), buffers.source_gradient)},
         {DNNL_ARG_SCRATCHPAD, memory(backward_data_desc_.scratchpad_desc(), buffers.scratchpad)}});
  }
}

void ConvLayer::bind_reorders() {
  const auto reorder = [](const dnnl::memory& from, const dnnl::memory& to) {
    return DnnlCall(dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  };
  load_ = reorder(flat_weights_, weights_);
  unload_gradient_ = reorder(weight_gradient_, flat_gradient_);
  if (has_source_gradient_) {
    load_for_backward_ = reorder(flat_weights_, weights_for_backward_);
  }
}

void ConvLayer::load_weights(const float* weights) {
  flat_weights_.set_data_handle(const_cast<float*>(weights));  // only read
  load_.run(context_.stream);
  if (has_source_gradient_) {
    load_for_backward_.run(context_.stream);
  }
}

void ConvLayer::backward_weights(float* gradient) {
  backward_weights_.run(context_.stream);
  flat_gradient_.set_data_handle(gradient);
  unload_gradient_.run(context_.stream);
}

}  // namespace mayfly::nn::cpu
