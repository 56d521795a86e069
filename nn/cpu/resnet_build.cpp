// The construction of the CPU engine: units, blocks, and the plan of their memory.

#include <algorithm>

#include "nn/cpu/resnet_engine.hpp"

namespace mayfly::nn::cpu {
namespace {

BlockedShape output_shape(const ConvSpec& spec, std::size_t images, std::size_t block) {
  const auto width = static_cast<std::size_t>(spec.output_size());
  return {.images = images,
          .channels = static_cast<std::size_t>(spec.out_channels),
          .pixels = width * width,
          .block = block};
}

ConvContext make_context(std::uint32_t microbatch, Dtype dtype) {
  const Isa isa = selected_isa();
  const Kernels& kernels = kernels_for(isa, dtype);
  ConvContext context{.isa = isa,
                      .dtype = dtype,
                      .kernels = &kernels,
                      .engine = dnnl::engine(dnnl::engine::kind::cpu, 0),
                      .stream = {},
                      .images = static_cast<int>(microbatch),
                      .block = static_cast<int>(kernels.block)};
  context.stream = dnnl::stream(context.engine);
  return context;
}

Classifier classifier_for(const Model& model, const ConvContext& context) {
  return {output_shape(model.blocks.back().convs.back(), static_cast<std::size_t>(context.images),
                       static_cast<std::size_t>(context.block)),
          model.classes, context.dtype};
}

}  // namespace

ResnetEngine::ResnetEngine(const Model& model, std::uint32_t microbatch,
                           const ResnetEngineOptions& options)
    : model_(model),
      microbatch_(microbatch),
      options_(options),
      context_(make_context(microbatch, options.dtype)),
      times_(convolutions_of(model).size()),
      classifier_(classifier_for(model, context_)) {
  build_units();
  build_blocks();
  plan_memory();
  arena_ = Arena(plan_);
  bind();
}

void ResnetEngine::build_units() {
  for (const ConvSpec* spec : convolutions_of(model_)) {
    units_.emplace_back(*spec,
                        output_shape(*spec, microbatch_, static_cast<std::size_t>(context_.block)));
  }
}

void ResnetEngine::build_blocks() {
  std::size_t next = 1;
  for (const BlockSpec& spec : model_.blocks) {
    Block& block = blocks_.emplace_back();
    for (std::size_t i = 0; i < spec.convs.size(); ++i) {
      block.units.push_back(&units_[next++]);
    }
    if (spec.projection.has_value()) {
      block.projection = &units_[next++];
    }
    if (spec.downsample) {
      const Block* before = blocks_.size() > 1 ? &blocks_[blocks_.size() - 2] : nullptr;
      block.shortcut.emplace(before != nullptr ? before->last().shape : units_.front().shape,
                             static_cast<std::size_t>(spec.convs.front().input_size),
                             options_.dtype);
    }
  }
}

/// Tensors that checks want to see live as long as the step.
Lifetime ResnetEngine::kept(int first, int last) const {
  return options_.keep_activations ? times_.whole() : Lifetime{first, last};
}

void ResnetEngine::build_convolution(std::size_t index, const ConvUse& use) {
  Unit& unit = units_[index];
  ConvUse all = use;
  all.name = model_.parameters[unit.spec.weight].name;
  all.forward_time = times_.forward(index);
  all.backward_time = times_.backward(index);
  all.whole_step = times_.whole();
  const bool is_winograd = kernel_for(context_.isa, unit.spec) == ConvKernel::kWinograd;
  unit.conv =
      (is_winograd ? make_winograd_conv : make_direct_conv)(context_, unit.spec, all, plan_);
  unit.raw_id = plan_values(all.name + " output", unit.shape.elements(),
                            kept(all.forward_time, all.backward_time));
}

void ResnetEngine::plan_stem() {
  const Unit& stem = units_.front();
  const auto side = static_cast<std::size_t>(model_.image_size);
  const std::size_t first_block_end =
      blocks_.front().units.size() + (blocks_.front().projection != nullptr ? 1 : 0);
  build_convolution(0, {.has_source_gradient = false});
  image_id_ =
      plan_values("images", std::size_t{microbatch_} * 3 * side * side, {0, times_.backward(0)});
  std::size_t out = stem.shape.elements();
  if (model_.stem_pool) {
    pool_.emplace(context_.isa, stem.shape.images, stem.shape.channels,
                  static_cast<std::size_t>(stem.spec.output_size()), stem.shape.block,
                  options_.dtype);
    out = pool_->to().elements();
    pool_places_id_ =
        plan_.add("pooling places", pool_->place_count(), {times_.forward(0), times_.backward(0)});
    pool_gradient_id_ = plan_values("pooling gradient", out,
                                    {times_.backward(first_block_end), times_.backward(0)});
  }
  stem_out_id_ = plan_values("stem output", out, {times_.forward(0), times_.backward(1)});
  units_.front().gradient_id =
      plan_values("stem gradient", stem.shape.elements(), {times_.backward(1), times_.backward(0)});
}

// A block's units have the indices first_unit, first_unit + 1, ..., its projection the last one.
// The gradient of its output is written while the next block's first unit goes backward.
void ResnetEngine::plan_block(std::size_t index, std::size_t first_unit) {
  Block& block = blocks_[index];
  const std::size_t end = first_unit + block.units.size() + (block.projection != nullptr ? 1 : 0);
  const bool is_last = index + 1 == blocks_.size();
  const int joined = times_.forward(end - 1);
  const int gradient_begins = is_last ? times_.classifier() : times_.backward(end);
  const std::string name = "block " + std::to_string(index);
  for (std::size_t i = 0; i < block.units.size(); ++i) {
    Unit& unit = *block.units[i];
    const std::size_t at = first_unit + i;
    build_convolution(at, {.reads_through_norm = i > 0});
    const bool ends_block = i + 1 == block.units.size();
    unit.gradient_id = plan_values(
        model_.parameters[unit.spec.weight].name + " output gradient", unit.shape.elements(),
        ends_block ? Lifetime{gradient_begins, times_.backward(first_unit)}
                   : Lifetime{times_.backward(at + 1), times_.backward(at)});
  }
  if (block.projection != nullptr) {
    build_convolution(end - 1, {});
  }
  block.out_id =
      plan_values(name + " output", block.last().shape.elements(), kept(joined, gradient_begins));
  if (block.shortcut.has_value()) {
    block.residual_id =
        plan_values(name + " shortcut", block.last().shape.elements(), {joined, joined});
  }
  if (block.shortcut.has_value() || block.projection != nullptr) {
    const ConvSpec& first = block.units.front()->spec;
    const auto size = static_cast<std::size_t>(first.input_size);
    block.shortcut_gradient_id = plan_values(
        name + " shortcut gradient",
        std::size_t{microbatch_} * static_cast<std::size_t>(first.in_channels) * size * size,
        {times_.backward(end - 1), times_.backward(first_unit)});
  }
}

void ResnetEngine::plan_memory() {
  plan_stem();
  std::size_t first_unit = 1;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    plan_block(i, first_unit);
    first_unit += blocks_[i].units.size() + (blocks_[i].projection != nullptr ? 1 : 0);
  }
  std::size_t scratch = 0;
  for (const Unit& unit : units_) {
    scratch = std::max(scratch, unit.conv->scratch_bytes());
  }
  scratch_id_ = plan_.add("kernels' working memory", scratch, times_.whole());
  plan_.place();
}

void ResnetEngine::bind_block(Block& block, const void* input) {
  block.input = input;
  block.out = arena_.at(block.out_id);
  if (block.residual_id != kNoTensor) {
    block.residual = arena_.at(block.residual_id);
  }
  if (block.shortcut_gradient_id != kNoTensor) {
    block.shortcut_gradient = arena_.at(block.shortcut_gradient_id);
  }
}

void ResnetEngine::bind() {
  for (Unit& unit : units_) {
    unit.raw = arena_.at(unit.raw_id);
    if (unit.gradient_id != kNoTensor) {
      unit.gradient = arena_.at(unit.gradient_id);
    }
    unit.conv->bind(arena_, arena_.at(scratch_id_));
  }
  images_ = arena_.at(image_id_);
  stem_out_ = arena_.at(stem_out_id_);
  if (pool_.has_value()) {
    pool_places_ = static_cast<std::uint8_t*>(arena_.at(pool_places_id_));
    pool_gradient_ = arena_.at(pool_gradient_id_);
  }
  const void* input = stem_out_;
  for (Block& block : blocks_) {
    bind_block(block, input);
    input = block.out;
  }
}

}  // namespace mayfly::nn::cpu
