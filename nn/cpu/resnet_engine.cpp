#include "nn/cpu/resnet_engine.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/cpu/isa.hpp"

namespace mayfly::nn::cpu {
namespace {

constexpr std::uint32_t kMicrobatchMax = 4096;

BlockedShape output_shape(const ConvSpec& spec, std::size_t images, std::size_t block) {
  const auto width = static_cast<std::size_t>(
      (spec.input_size + 2 * spec.padding - spec.kernel) / spec.stride + 1);
  return {.images = images,
          .channels = static_cast<std::size_t>(spec.out_channels),
          .pixels = width * width,
          .block = block};
}

Classifier classifier_for(const Model& model, std::size_t images, std::size_t block) {
  return {output_shape(model.blocks.back().convs.back(), images, block), model.classes};
}

}  // namespace

Unit::Unit(const ConvContext& context, const Kernels& kernels, const ConvSpec& conv_spec,
           bool has_source_gradient, Arena& arena)
    : spec(conv_spec),
      shape(output_shape(conv_spec, static_cast<std::size_t>(context.images), kernels.block)),
      conv(context, conv_spec, has_source_gradient, arena),
      norm(kernels, shape),
      raw_slot(arena.reserve_floats(shape.elements())),
      active_slot(arena.reserve_floats(shape.elements())) {}

ResnetEngine::ResnetEngine(const Model& model, std::uint32_t microbatch)
    : model_(model),
      microbatch_(microbatch),
      kernels_(kernels_for(selected_isa())),
      context_{.engine = dnnl::engine(dnnl::engine::kind::cpu, 0),
               .stream = {},
               .images = static_cast<int>(microbatch),
               .block = static_cast<int>(kernels_.block)},
      classifier_(classifier_for(model, microbatch, kernels_.block)) {
  context_.stream = dnnl::stream(context_.engine);
  build_units();
  build_blocks();
  reserve_shared();
  arena_.allocate();
  bind();
}

void ResnetEngine::build_units() {
  units_.emplace_back(context_, kernels_, model_.stem, false, arena_);
  for (const BlockSpec& block : model_.blocks) {
    units_.emplace_back(context_, kernels_, block.convs[0], true, arena_);
    units_.emplace_back(context_, kernels_, block.convs[1], true, arena_);
  }
}

void ResnetEngine::build_blocks() {
  for (std::size_t i = 0; i < model_.blocks.size(); ++i) {
    Block& block = blocks_.emplace_back();
    block.first = &units_[1 + 2 * i];
    block.second = &units_[2 + 2 * i];
    if (model_.blocks[i].downsample) {
      block.shortcut.emplace(units_[2 * i].shape,
                             static_cast<std::size_t>(model_.blocks[i].convs[0].input_size));
    }
    const bool is_last = i + 1 == model_.blocks.size();
    block.has_addend = !is_last && !model_.blocks[i + 1].downsample;
  }
}

void ResnetEngine::reserve_shared() {
  std::size_t elements = 0;
  std::size_t scratchpad = 0;
  for (const Unit& unit : units_) {
    elements = std::max(elements, unit.shape.elements());
    scratchpad = std::max(scratchpad, unit.conv.scratchpad_bytes());
  }
  for (Arena::Slot& slot : gradient_slots_) {
    slot = arena_.reserve_floats(elements);
  }
  const auto side = static_cast<std::size_t>(model_.image_size);
  image_slot_ = arena_.reserve_floats(std::size_t{microbatch_} * 3 * side * side);
  shortcut_slot_ = arena_.reserve_floats(elements);
  scratchpad_slot_ = arena_.reserve(scratchpad);
}

void ResnetEngine::bind() {
  for (Unit& unit : units_) {
    unit.raw = arena_.floats(unit.raw_slot);
    unit.active = arena_.floats(unit.active_slot);
  }
  images_ = arena_.floats(image_slot_);
  shortcut_out_ = arena_.floats(shortcut_slot_);
  bind_blocks({arena_.floats(gradient_slots_[0]), arena_.floats(gradient_slots_[1]),
               arena_.floats(gradient_slots_[2])},
              arena_.at(scratchpad_slot_));
}

void ResnetEngine::bind_blocks(const std::array<float*, 3>& gradients, void* scratchpad) {
  auto [joint, addend, other] = gradients;
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    Block& block = blocks_[i];
    block.input = units_[2 * i].active;
    block.joint = joint;
    block.addend = addend;
    block.other = other;
    block.second->conv.bind(arena_, {.source = block.first->active,
                                     .destination = block.second->raw,
                                     .destination_gradient = other,
                                     .source_gradient = addend,
                                     .scratchpad = scratchpad});
    block.first->conv.bind(arena_, {.source = units_[2 * i].active,
                                    .destination = block.first->raw,
                                    .destination_gradient = addend,
                                    .source_gradient = other,
                                    .scratchpad = scratchpad});
    // joint' = other, addend' = joint, other' = addend
    joint = std::exchange(other, std::exchange(addend, joint));
  }
  stem_joint_ = joint;
  stem_addend_ = addend;
  units_.front().conv.bind(arena_, {.source = images_,
                                    .destination = units_.front().raw,
                                    .destination_gradient = joint,
                                    .source_gradient = nullptr,
                                    .scratchpad = scratchpad});
}

void ResnetEngine::load(const Weights& weights, const Batch& batch) {
  const auto side = static_cast<std::size_t>(model_.image_size);
  ENSURE(weights.parameters.size() == model_.parameter_count, "weights belong to this model");
  ENSURE(batch.images.size() == batch.labels.size() * 3 * side * side, "one image per label");
  std::ranges::copy(batch.images, images_);
  if (loaded_version_ == weights.version) {
    return;
  }
  for (Unit& unit : units_) {
    unit.conv.load_weights(weights.parameters.data() + offset(unit.spec.weight));
  }
  loaded_version_ = weights.version;
}

ClassifierWeights ResnetEngine::classifier_weights(const Weights& weights) const {
  const float* parameters = weights.parameters.data();
  return {parameters + offset(model_.classifier_weight),
          parameters + offset(model_.classifier_weight + 1)};
}

template <typename PrepareNorm>
void ResnetEngine::forward(const Weights& weights, std::size_t count,
                           const PrepareNorm& prepare_norm) {
  const auto convolve = [&](Unit& unit) {
    unit.conv.forward();
    prepare_norm(unit);
  };
  Unit& stem = units_.front();
  convolve(stem);
  stem.norm.forward_relu(stem.raw, stem.active);
  for (Block& block : blocks_) {
    Unit& first = *block.first;
    Unit& second = *block.second;
    convolve(first);
    first.norm.forward_relu(first.raw, first.active);
    convolve(second);
    const float* residual = block.input;
    if (block.shortcut.has_value()) {
      block.shortcut->forward(block.input, shortcut_out_);
      residual = shortcut_out_;
    }
    second.norm.forward_add_relu(second.raw, residual, second.active);
  }
  classifier_.forward(classifier_weights(weights), units_.back().active, count);
}

void ResnetEngine::measure(Unit& unit, const Weights& weights, std::span<float> statistics) {
  const float* parameters = weights.parameters.data();
  unit.norm.measure(unit.raw, parameters + offset(unit.spec.weight + 1),
                    parameters + offset(unit.spec.weight + 2),
                    statistics.data() + statistic_offset(unit.spec.running_mean),
                    statistics.data() + statistic_offset(unit.spec.running_mean + 1));
}

void ResnetEngine::use_running(Unit& unit, const Weights& weights) {
  const float* parameters = weights.parameters.data();
  const float* statistics = weights.statistics.data();
  unit.norm.use_running(parameters + offset(unit.spec.weight + 1),
                        parameters + offset(unit.spec.weight + 2),
                        statistics + statistic_offset(unit.spec.running_mean),
                        statistics + statistic_offset(unit.spec.running_mean + 1));
}

void ResnetEngine::backward(Block& block, std::span<float> gradient, GradientSink& sink) {
  Unit& first = *block.first;
  Unit& second = *block.second;
  float* const to = gradient.data();
  second.norm.backward_add_relu(
      block.joint, block.has_addend ? block.addend : nullptr, second.active, second.raw,
      block.other, to + offset(second.spec.weight + 1), to + offset(second.spec.weight + 2));
  second.conv.backward_weights(to + offset(second.spec.weight));
  sink.ready_from(offset(second.spec.weight));
  second.conv.backward_data();  // other -> addend, which the join has used up

  first.norm.backward_relu(block.addend, first.raw, to + offset(first.spec.weight + 1),
                           to + offset(first.spec.weight + 2));
  first.conv.backward_weights(to + offset(first.spec.weight));
  sink.ready_from(offset(first.spec.weight));
  first.conv.backward_data();  // addend -> other
  if (block.shortcut.has_value()) {
    block.shortcut->backward_add(block.joint, block.other);
  }
}

void ResnetEngine::backward_stem(std::span<float> gradient, GradientSink& sink) {
  Unit& stem = units_.front();
  stem.norm.backward_add_relu(stem_joint_, stem_addend_, stem.active, stem.raw, stem_joint_,
                              gradient.data() + offset(stem.spec.weight + 1),
                              gradient.data() + offset(stem.spec.weight + 2));
  stem.conv.backward_weights(gradient.data() + offset(stem.spec.weight));
  sink.ready_from(offset(stem.spec.weight));
}

TrainResult ResnetEngine::train(const Weights& weights, const Batch& batch, float label_smoothing,
                                std::span<float> gradient, std::span<float> statistics,
                                GradientSink& sink) {
  ENSURE(batch.labels.size() == microbatch_, "training uses whole microbatches");
  ENSURE(gradient.size() == model_.parameter_count, "the gradient has a place for each parameter");
  ENSURE(statistics.size() == model_.statistic_count, "the statistics have a place for each norm");
  load(weights, batch);
  forward(weights, microbatch_, [&](Unit& unit) { measure(unit, weights, statistics); });
  const TrainResult result = classifier_.loss_and_gradient(batch.labels, label_smoothing);

  const std::size_t classifier = offset(model_.classifier_weight);
  classifier_.backward(classifier_weights(weights), gradient.data() + classifier,
                       gradient.data() + offset(model_.classifier_weight + 1),
                       blocks_.back().joint);
  sink.ready_from(classifier);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    backward(blocks_[i], gradient, sink);
  }
  backward_stem(gradient, sink);
  return result;
}

EvaluationResult ResnetEngine::evaluate(const Weights& weights, const Batch& batch) {
  ENSURE(!batch.labels.empty() && batch.labels.size() <= microbatch_, "1 to microbatch samples");
  ENSURE(weights.statistics.size() == model_.statistic_count, "statistics belong to this model");
  load(weights, batch);
  // Places without a sample compute on what earlier batches left; no result reads them.
  forward(weights, batch.labels.size(), [&](Unit& unit) { use_running(unit, weights); });
  return classifier_.score(batch.labels);
}

Result<std::unique_ptr<StepEngine>> make_cpu_engine(const Model& model, std::uint32_t microbatch) {
  if (microbatch == 0 || microbatch > kMicrobatchMax) {
    return Error{Errc::kInvalidInput,
                 fmt::format("a microbatch of {} samples; 1 to {} are possible", microbatch,
                             kMicrobatchMax)};
  }
  if (model.stem_pool) {
    return Error{
        Errc::kUnsupported,
        fmt::format("the CPU engine computes the CIFAR networks only, not {}", model.name)};
  }
  // Per thread, and baked into primitives when they are built: with more threads oneDNN's weight
  // gradients have other bits, and inside a parallel region they can hang.
  omp_set_num_threads(1);
  try {
    return std::unique_ptr<StepEngine>(std::make_unique<ResnetEngine>(model, microbatch));
  } catch (const dnnl::error& error) {
    return Error{Errc::kUnsupported,
                 fmt::format("oneDNN cannot build {}: {}", model.name, error.message)};
  }
}

}  // namespace mayfly::nn::cpu
