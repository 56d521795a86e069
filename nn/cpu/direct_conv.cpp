#include "nn/cpu/convolution.hpp"

#include <algorithm>
#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace mayfly::nn::cpu {
namespace {

using dnnl::memory;

constexpr auto kFloat = memory::data_type::f32;

memory::data_type data_type(Dtype dtype) {
  return dtype == Dtype::kBf16 ? memory::data_type::bf16 : kFloat;
}

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

/// The tensors of one convolution. Activations have the layout of Mayfly's kernels; oneDNN chooses
/// that of weights, pass by pass.
struct ConvDescs {
  memory::desc source;
  memory::desc destination;
  memory::desc weights;
  memory::desc weight_gradient;
  memory::dims strides;
  memory::dims padding;
};

memory::desc activation(const ConvContext& context, memory::dims dims) {
  using Tag = memory::format_tag;
  const bool blocked = dims[1] % context.block == 0;
  const Tag tag = !blocked ? Tag::nchw : context.block == 16 ? Tag::nChw16c : Tag::nChw8c;
  return {std::move(dims), data_type(context.dtype), tag};
}

/// A tensor like `blocked` whose layout oneDNN may choose.
memory::desc any_layout(const memory::desc& blocked) {
  return {blocked.dims(), blocked.data_type(), memory::format_tag::any};
}

memory::dims weight_dims(const ConvSpec& spec) {
  return {spec.out_channels, spec.in_channels, spec.kernel, spec.kernel};
}

ConvDescs describe(const ConvContext& context, const ConvSpec& spec) {
  const int output_size = spec.output_size();
  return {.source = activation(
              context, {context.images, spec.in_channels, spec.input_size, spec.input_size}),
          .destination =
              activation(context, {context.images, spec.out_channels, output_size, output_size}),
          .weights = {weight_dims(spec), data_type(context.dtype), memory::format_tag::any},
          .weight_gradient = {weight_dims(spec), kFloat, memory::format_tag::any},
          .strides = {spec.stride, spec.stride},
          .padding = {spec.padding, spec.padding}};
}

BlockedShape blocked_shape(const ConvContext& context, int channels, int size) {
  const auto width = static_cast<std::size_t>(size);
  return {.images = static_cast<std::size_t>(context.images),
          .channels = static_cast<std::size_t>(channels),
          .pixels = width * width,
          .block = static_cast<std::size_t>(context.block)};
}

void point_at(dnnl::memory& memory, const void* data) {
  memory.set_data_handle(const_cast<void*>(data));  // sources are only read
}

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

/// An activation in the layout that a pass requires, if that is not the layout of Mayfly's kernels.
class Converted {
 public:
  void plan(const memory::desc& ours, const memory::desc& wanted, const std::string& name,
            Lifetime lifetime, MemoryPlan& plan);
  /// The memory that the pass reads. `ours` will be pointed at the data before each run().
  dnnl::memory bind(const dnnl::memory& ours, const dnnl::engine& engine, Arena& arena);
  void run(const dnnl::stream& stream) const;

 private:
  memory::desc wanted_;
  TensorId id_ = kNoTensor;  ///< kNoTensor: the pass reads Mayfly's layout
  DnnlCall reorder_;
};

class DirectConv final : public Convolution {
 public:
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
  /// The weight gradient over `d.source` and `d.destination`, or over layouts of oneDNN's choice if
  /// oneDNN has only its reference implementation for these.
  [[nodiscard]] BackwardWeights::primitive_desc describe_backward_weights(
      const ConvDescs& d, const dnnl::primitive_attr& attributes) const;
  void plan_memory(const ConvUse& use, MemoryPlan& plan);
  void bind_passes(Arena& arena);
  void bind_reorders();
  /// The output's gradient in a form that oneDNN can read.
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

  // They are pointed at the caller's arrays in each call.
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
  Converted source_for_gradient_;
  Converted gradient_for_gradient_;
  DnnlCall forward_;
  DnnlCall backward_data_;
  DnnlCall backward_weights_;
  DnnlCall load_;
  DnnlCall load_for_backward_;
  DnnlCall unload_gradient_;
};

DnnlCall::DnnlCall(dnnl::primitive primitive,
                   std::initializer_list<std::pair<int, dnnl::memory>> arguments)
    : primitive_(std::move(primitive)) {
  for (const auto& [name, memory] : arguments) {
    memories_.push_back(memory);
    arguments_.push_back({name, memory.get()});
  }
}

void DnnlCall::run(const dnnl::stream& stream) const {
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream.get(), static_cast<int>(arguments_.size()), arguments_.data());
  ENSURE(status == dnnl_success, "a prepared oneDNN primitive has all its arguments");
}

DnnlCall reorder_call(const dnnl::memory& from, const dnnl::memory& to) {
  return {dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

void Converted::plan(const memory::desc& ours, const memory::desc& wanted, const std::string& name,
                     Lifetime lifetime, MemoryPlan& plan) {
  wanted_ = wanted;
  if (wanted != ours) {
    id_ = plan.add(name, wanted.get_size(), lifetime);
  }
}

dnnl::memory Converted::bind(const dnnl::memory& ours, const dnnl::engine& engine, Arena& arena) {
  if (id_ == kNoTensor) {
    return ours;
  }
  const dnnl::memory converted(wanted_, engine, arena.at(id_));
  reorder_ = reorder_call(ours, converted);
  return converted;
}

void Converted::run(const dnnl::stream& stream) const {
  if (id_ != kNoTensor) {
    reorder_.run(stream);
  }
}

DirectConv::DirectConv(const ConvContext& context, const ConvSpec& spec, const ConvUse& use,
                       MemoryPlan& plan)
    : context_(context),
      has_source_gradient_(use.has_source_gradient),
      source_shape_(blocked_shape(context, spec.in_channels, spec.input_size)),
      destination_shape_(blocked_shape(context, spec.out_channels, spec.output_size())),
      flat_weights_desc_(weight_dims(spec), kFloat, memory::format_tag::oihw) {
  const ConvDescs d = describe(context, spec);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  forward_desc_ = {{dnnl::prop_kind::forward_training, kAlgorithm, d.source, d.weights,
                    d.destination, d.strides, d.padding, d.padding},
                   attributes,
                   context.engine};
  backward_weights_desc_ = describe_backward_weights(d, attributes);
  scratchpad_bytes_ = std::max(forward_desc_.scratchpad_desc().get_size(),
                               backward_weights_desc_.scratchpad_desc().get_size());
  if (has_source_gradient_) {
    backward_data_desc_ = {
        {kAlgorithm, d.source, d.weights, d.destination, d.strides, d.padding, d.padding},
        attributes,
        context.engine,
        forward_desc_};
    scratchpad_bytes_ =
        std::max(scratchpad_bytes_, backward_data_desc_.scratchpad_desc().get_size());
  }
  plan_memory(use, plan);
}

auto DirectConv::describe_backward_weights(const ConvDescs& d,
                                           const dnnl::primitive_attr& attributes) const
    -> BackwardWeights::primitive_desc {
  const auto over = [&](const memory::desc& source, const memory::desc& destination) {
    return BackwardWeights::primitive_desc(
        {kAlgorithm, source, d.weight_gradient, destination, d.strides, d.padding, d.padding},
        attributes, context_.engine, forward_desc_);
  };
  const auto is_reference = [](const BackwardWeights::primitive_desc& desc) {
    return std::string_view(desc.impl_info_str()).starts_with("ref");
  };
  // oneDNN 2.6 has no AVX2 kernel for a padded image of one or two pixels a side. A product
  // of matrices over plain images takes 120 ms where the reference takes 18 s (512 channels, 32
  // images of 2x2), and the two reorders next to nothing.
  auto ours = over(d.source, d.destination);
  if (!is_reference(ours)) {
    return ours;
  }
  auto free = over(any_layout(d.source), any_layout(d.destination));
  return is_reference(free) ? ours : free;
}

void DirectConv::plan_memory(const ConvUse& use, MemoryPlan& plan) {
  const Lifetime backward{use.backward_time, use.backward_time};
  weights_id_ =
      plan.add(use.name + " blocked", forward_desc_.weights_desc().get_size(), use.whole_step);
  weight_gradient_id_ = plan.add(use.name + " gradient, blocked",
                                 backward_weights_desc_.diff_weights_desc().get_size(), backward);
  source_for_gradient_.plan(forward_desc_.src_desc(), backward_weights_desc_.src_desc(),
                            use.name + " input, converted", backward, plan);
  gradient_for_gradient_.plan(forward_desc_.dst_desc(), backward_weights_desc_.diff_dst_desc(),
                              use.name + " gradient of the output, converted", backward, plan);
  const std::size_t element = bytes_of(context_.dtype);
  plain_gradient_id_ = plan.add(use.name + " gradient of the output",
                                destination_shape_.elements() * element, backward);
  if (has_source_gradient_) {
    backward_weights_id_ = plan.add(use.name + " blocked for backward",
                                    backward_data_desc_.weights_desc().get_size(), use.whole_step);
  }
  if (use.reads_through_norm) {
    active_id_ = plan.add(use.name + " input", source_shape_.elements() * element,
                          {use.forward_time, use.backward_time});
  }
}

void DirectConv::bind(Arena& arena, void* scratch) {
  weights_ = memory(forward_desc_.weights_desc(), arena.at(weights_id_));
  weight_gradient_ =
      memory(backward_weights_desc_.diff_weights_desc(), arena.at(weight_gradient_id_));
  plain_gradient_ = arena.at(plain_gradient_id_);
  if (active_id_ != kNoTensor) {
    active_ = arena.at(active_id_);
  }
  source_ = memory(forward_desc_.src_desc(), nullptr);
  destination_ = memory(forward_desc_.dst_desc(), nullptr);
  destination_gradient_ = memory(forward_desc_.dst_desc(), nullptr);
  flat_weights_ = memory(flat_weights_desc_, nullptr);
  flat_gradient_ = memory(flat_weights_desc_, nullptr);
  if (has_source_gradient_) {
    weights_for_backward_ =
        memory(backward_data_desc_.weights_desc(), arena.at(backward_weights_id_));
    source_gradient_ = memory(backward_data_desc_.diff_src_desc(), nullptr);
  }
  scratchpad_ = memory(forward_desc_.scratchpad_desc(), scratch);
  bind_passes(arena);
  bind_reorders();
}

void DirectConv::bind_passes(Arena& arena) {
  void* const scratch = scratchpad_.get_data_handle();
  forward_ = DnnlCall(Forward(forward_desc_), {{DNNL_ARG_SRC, source_},
                                               {DNNL_ARG_WEIGHTS, weights_},
                                               {DNNL_ARG_DST, destination_},
                                               {DNNL_ARG_SCRATCHPAD, scratchpad_}});
  backward_weights_ =
      DnnlCall(BackwardWeights(backward_weights_desc_),
               {{DNNL_ARG_SRC, source_for_gradient_.bind(source_, context_.engine, arena)},
                {DNNL_ARG_DIFF_DST,
                 gradient_for_gradient_.bind(destination_gradient_, context_.engine, arena)},
                {DNNL_ARG_DIFF_WEIGHTS, weight_gradient_},
                {DNNL_ARG_SCRATCHPAD, memory(backward_weights_desc_.scratchpad_desc(), scratch)}});
  if (has_source_gradient_) {
    backward_data_ =
        DnnlCall(BackwardData(backward_data_desc_),
                 {{DNNL_ARG_DIFF_DST, destination_gradient_},
                  {DNNL_ARG_WEIGHTS, weights_for_backward_},
                  {DNNL_ARG_DIFF_SRC, source_gradient_},
                  {DNNL_ARG_SCRATCHPAD, memory(backward_data_desc_.scratchpad_desc(), scratch)}});
  }
}

void DirectConv::bind_reorders() {
  load_ = reorder_call(flat_weights_, weights_);
  unload_gradient_ = reorder_call(weight_gradient_, flat_gradient_);
  if (has_source_gradient_) {
    load_for_backward_ = reorder_call(flat_weights_, weights_for_backward_);
  }
}

void DirectConv::load_weights(const float* weights) {
  point_at(flat_weights_, weights);
  load_.run(context_.stream);
  if (has_source_gradient_) {
    load_for_backward_.run(context_.stream);
  }
}

void DirectConv::forward(const ActivationRead& from, const ActivationWrite& to) {
  const void* source = from.x;
  if (from.through_norm) {
    ENSURE(active_ != nullptr, "reading through a norm was announced");
    context_.kernels->normalise_relu(source_shape_, from.x, from.affine, active_);
    source = active_;
  }
  point_at(source_, source);
  point_at(destination_, to.out);
  forward_.run(context_.stream);
  if (to.wants_moments) {
    context_.kernels->moments(destination_shape_, to.out, to.moments);
  }
}

const void* DirectConv::plain(const GradientRead& gradient) {
  if (!gradient.through_norm) {
    return gradient.gradient;
  }
  context_.kernels->input_gradient(destination_shape_, gradient.gradient, gradient.x,
                                   gradient.factors, plain_gradient_);
  return plain_gradient_;
}

void DirectConv::backward(const ActivationRead& from, const GradientRead& gradient,
                          const GradientWrite* to, float* weight_gradient) {
  ENSURE((to != nullptr) == has_source_gradient_, "the passes were chosen at the beginning");
  point_at(source_, from.through_norm ? active_ : from.x);
  point_at(destination_gradient_, plain(gradient));
  source_for_gradient_.run(context_.stream);
  gradient_for_gradient_.run(context_.stream);
  backward_weights_.run(context_.stream);
  point_at(flat_gradient_, weight_gradient);
  unload_gradient_.run(context_.stream);
  if (to != nullptr) {
    point_at(source_gradient_, to->out);
    backward_data_.run(context_.stream);
    context_.kernels->finish_gradient(source_shape_, *to);
  }
}

}  // namespace

std::unique_ptr<Convolution> make_direct_conv(const ConvContext& context, const ConvSpec& spec,
                                              const ConvUse& use, MemoryPlan& plan) {
  return std::make_unique<DirectConv>(context, spec, use, plan);
}

}  // namespace mayfly::nn::cpu
