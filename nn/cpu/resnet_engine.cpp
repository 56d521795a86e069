#include "nn/cpu/resnet_engine.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <memory>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::nn::cpu {
namespace {

constexpr std::uint32_t kMicrobatchMax = 4096;

}  // namespace

void ResnetEngine::load(const Weights& weights, const Batch& batch) {
  const auto side = static_cast<std::size_t>(model_.image_size);
  ENSURE(weights.parameters.size() == model_.parameter_count, "weights belong to this model");
  ENSURE(batch.images.size() == batch.labels.size() * 3 * side * side, "one image per label");
  context_.kernels->store_images(batch.images.data(), batch.images.size(), images_);
  if (loaded_version_ == weights.version) {
    return;
  }
  for (Unit& unit : units_) {
    unit.conv->load_weights(weights.parameters.data() + offset(unit.spec.weight));
  }
  loaded_version_ = weights.version;
}

ClassifierWeights ResnetEngine::classifier_weights(const Weights& weights) const {
  const float* parameters = weights.parameters.data();
  return {parameters + offset(model_.classifier_weight),
          parameters + offset(model_.classifier_weight + 1)};
}

/// After a block's last norm: adds the shortcut, applies the ReLU, stores.
void ResnetEngine::join(Block& block) {
  const Kernels& kernels = *context_.kernels;
  const Unit& last = block.last();
  if (block.projection != nullptr) {
    kernels.normalise_both_add_relu(last.shape, last.raw, last.norm.affine(), block.projection->raw,
                                    block.projection->norm.affine(), block.out);
    return;
  }
  const void* residual = block.input;
  if (block.shortcut.has_value()) {
    block.shortcut->forward(block.input, block.residual);
    residual = block.residual;
  }
  kernels.normalise_add_relu(last.shape, last.raw, last.norm.affine(), residual, block.out);
}

template <typename PrepareNorm>
void ResnetEngine::forward(const Weights& weights, std::size_t count, bool training,
                           const PrepareNorm& prepare_norm) {
  const auto convolve = [&](Unit& unit, const ActivationRead& from) {
    unit.conv->forward(from, {unit.raw, training, unit.norm.sums()});
    prepare_norm(unit);
    passed(StepPart::kForward, &unit);
  };
  Unit& stem = units_.front();
  convolve(stem, {.x = images_});
  if (pool_.has_value()) {
    pool_->forward(stem.raw, stem.norm.affine(), stem_out_, pool_places_);
  } else {
    context_.kernels->normalise_relu(stem.shape, stem.raw, stem.norm.affine(), stem_out_);
  }
  passed(StepPart::kForwardElementwise, &stem);
  for (Block& block : blocks_) {
    ActivationRead from{.x = block.input};
    for (Unit* unit : block.units) {
      convolve(*unit, from);
      from = unit->through_norm();
    }
    if (block.projection != nullptr) {
      convolve(*block.projection, {.x = block.input});
    }
    join(block);
    passed(StepPart::kForwardElementwise, &block.last());
  }
  classifier_.forward(classifier_weights(weights), blocks_.back().out, count);
}

void ResnetEngine::measure(Unit& unit, const Weights& weights, std::span<float> statistics) {
  const float* parameters = weights.parameters.data();
  unit.norm.measure(parameters + offset(unit.spec.weight + 1),
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

/// To be called when the sums over a unit's gradient are complete: computes the gradients of its
/// norm's scale and shift, and the factors to read the gradient through the norm.
void ResnetEngine::derive(Unit& unit, std::span<float> gradient) {
  unit.norm.derive_input_gradient(gradient.data() + offset(unit.spec.weight + 1),
                                  gradient.data() + offset(unit.spec.weight + 2));
}

namespace {

GradientRead through_norm(const Unit& unit, const void* gradient) {
  return {gradient, true, unit.raw, unit.norm.gradient_factors()};
}

/// The gradient of a unit's output, masked by the ReLU behind its norm, whose output is not stored.
GradientWrite masked_by_norm(Unit& unit) {
  return {.out = unit.gradient,
          .mask = ReluMask::kAffine,
          .affine = unit.norm.affine(),
          .x = unit.raw,
          .mean = unit.norm.mean(),
          .sums = unit.norm.sums()};
}

/// The same where the ReLU's output is stored.
GradientWrite masked_by_output(Unit& unit, const void* relu_output) {
  return {.out = unit.gradient,
          .mask = ReluMask::kPositive,
          .relu_output = relu_output,
          .x = unit.raw,
          .mean = unit.norm.mean(),
          .sums = unit.norm.sums()};
}

}  // namespace

GradientWrite ResnetEngine::input_gradient_of(std::size_t index) {
  if (index > 0) {
    return masked_by_output(blocks_[index - 1].last(), blocks_[index].input);
  }
  if (pool_.has_value()) {
    return {.out = pool_gradient_};
  }
  return masked_by_output(units_.front(), stem_out_);
}

/// The shortcut's part of the gradient of the block's input, unless the shortcut is the identity.
void ResnetEngine::backward_shortcut(Block& block, std::span<float> gradient, GradientSink& sink) {
  const void* joint = block.last().gradient;
  if (block.shortcut.has_value()) {
    block.shortcut->backward(joint, block.shortcut_gradient);
    passed(StepPart::kBackwardElementwise, &block.last());
  }
  if (block.projection == nullptr) {
    return;
  }
  Unit& projection = *block.projection;
  context_.kernels->gradient_sums(projection.shape, joint, projection.raw, projection.norm.mean(),
                                  projection.norm.sums());
  derive(projection, gradient);
  const GradientWrite to{.out = block.shortcut_gradient};
  projection.conv->backward({.x = block.input}, through_norm(projection, joint), &to,
                            gradient.data() + offset(projection.spec.weight));
  passed(StepPart::kBackward, &projection);
  sink.ready_from(offset(projection.spec.weight));
}

void ResnetEngine::backward(std::size_t index, std::span<float> gradient, GradientSink& sink) {
  Block& block = blocks_[index];
  backward_shortcut(block, gradient, sink);
  for (std::size_t i = block.units.size(); i-- > 0;) {
    Unit& unit = *block.units[i];
    derive(unit, gradient);
    ActivationRead from{.x = block.input};
    GradientWrite to;
    if (i > 0) {
      from = block.units[i - 1]->through_norm();
      to = masked_by_norm(*block.units[i - 1]);
    } else {
      to = input_gradient_of(index);
      to.addend =
          block.shortcut_gradient != nullptr ? block.shortcut_gradient : block.last().gradient;
    }
    unit.conv->backward(from, through_norm(unit, unit.gradient), &to,
                        gradient.data() + offset(unit.spec.weight));
    passed(StepPart::kBackward, &unit);
    sink.ready_from(offset(unit.spec.weight));
  }
}

void ResnetEngine::backward_stem(std::span<float> gradient, GradientSink& sink) {
  Unit& stem = units_.front();
  if (pool_.has_value()) {
    pool_->backward(pool_gradient_, pool_places_, stem.gradient);
    context_.kernels->gradient_sums(stem.shape, stem.gradient, stem.raw, stem.norm.mean(),
                                    stem.norm.sums());
    passed(StepPart::kBackwardElementwise, &stem);
  }
  derive(stem, gradient);
  stem.conv->backward({.x = images_}, through_norm(stem, stem.gradient), nullptr,
                      gradient.data() + offset(stem.spec.weight));
  passed(StepPart::kBackward, &stem);
  sink.ready_from(offset(stem.spec.weight));
}

TrainResult ResnetEngine::train(const Weights& weights, const Batch& batch, float label_smoothing,
                                std::span<float> gradient, std::span<float> statistics,
                                GradientSink& sink) {
  ENSURE(batch.labels.size() == microbatch_, "training uses whole microbatches");
  ENSURE(gradient.size() == model_.parameter_count, "the gradient has a place for each parameter");
  ENSURE(statistics.size() == model_.statistic_count, "the statistics have a place for each norm");
  passed(StepPart::kOutside);
  load(weights, batch);
  passed(StepPart::kLoad);
  forward(weights, microbatch_, true, [&](Unit& unit) { measure(unit, weights, statistics); });
  const TrainResult result = classifier_.loss_and_gradient(batch.labels, label_smoothing);

  const std::size_t classifier = offset(model_.classifier_weight);
  Unit& last = blocks_.back().last();
  classifier_.backward(classifier_weights(weights), gradient.data() + classifier,
                       gradient.data() + offset(model_.classifier_weight + 1), last.gradient);
  sink.ready_from(classifier);
  passed(StepPart::kClassifier);
  context_.kernels->finish_gradient(last.shape, masked_by_output(last, blocks_.back().out));
  passed(StepPart::kBackwardElementwise, &last);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    backward(i, gradient, sink);
  }
  backward_stem(gradient, sink);
  return result;
}

EvaluationResult ResnetEngine::evaluate(const Weights& weights, const Batch& batch) {
  ENSURE(!batch.labels.empty() && batch.labels.size() <= microbatch_, "1 to microbatch samples");
  ENSURE(weights.statistics.size() == model_.statistic_count, "statistics belong to this model");
  load(weights, batch);
  // Places without a sample compute with data of earlier batches, which no result reads.
  forward(weights, batch.labels.size(), false, [&](Unit& unit) { use_running(unit, weights); });
  return classifier_.score(batch.labels);
}

Result<std::unique_ptr<ResnetEngine>> make_resnet_engine(const Model& model,
                                                         std::uint32_t microbatch,
                                                         const ResnetEngineOptions& options) {
  if (microbatch == 0 || microbatch > kMicrobatchMax) {
    return Error{Errc::kInvalidInput,
                 fmt::format("a microbatch of {} samples; 1 to {} are possible", microbatch,
                             kMicrobatchMax)};
  }
  // The number of threads is set per thread and fixed when primitives are built. With more threads
  // oneDNN's weight gradients have other bits, and inside a parallel region they can hang.
  omp_set_num_threads(1);
  try {
    return std::make_unique<ResnetEngine>(model, microbatch, options);
  } catch (const dnnl::error& error) {
    return Error{Errc::kUnsupported,
                 fmt::format("oneDNN cannot build {}: {}", model.name, error.message)};
  } catch (const TooLittleMemory& error) {
    return Error{Errc::kUnsupported,
                 fmt::format("{} with a microbatch of {} needs {} MiB of memory for each compute "
                             "thread, and this host has {} MiB left: lower --microbatch or "
                             "--threads",
                             model.name, microbatch, error.needed >> 20, error.usable >> 20)};
  }
}

Result<std::unique_ptr<StepEngine>> make_cpu_engine(const Model& model, std::uint32_t microbatch,
                                                    const CpuEngineOptions& options) {
  TRY_ASSIGN(auto engine,
             make_resnet_engine(model, microbatch,
                                {.dtype = options.dtype, .observer = options.observer}));
  return std::unique_ptr<StepEngine>(std::move(engine));
}

Result<MemoryPlan> memory_plan_of(const Model& model, std::uint32_t microbatch, Dtype dtype) {
  TRY_ASSIGN(auto engine, make_resnet_engine(model, microbatch, {.dtype = dtype}));
  return engine->memory_plan();
}

}  // namespace mayfly::nn::cpu
