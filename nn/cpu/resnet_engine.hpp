#pragma once

// Private to nn/cpu. The CPU step engine: walks a residual network forward and backward.
//
// A unit is a convolution with the norm behind it. Between the passes units keep only the
// convolution's output; norm and ReLU are applied when it is read (nn/cpu/kernels.hpp). So a
// normalised tensor is stored only where a shortcut begins (behind the stem and behind each block)
// and where oneDNN reads it, because oneDNN does not support these norms. The gradient that is
// stored for a unit is that of its norm's output, masked by the ReLU.

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/cpu/block_layers.hpp"
#include "nn/cpu/classifier.hpp"
#include "nn/cpu/convolution.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/cpu/kernels.hpp"
#include "nn/cpu/max_pool.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cpu {

/// Positions in a step, for lifetimes: units go forward in the order of their tensors and backward
/// the other way around.
class StepTimes {
 public:
  explicit StepTimes(std::size_t units) : units_(static_cast<int>(units)) {}

  [[nodiscard]] int forward(std::size_t unit) const { return 1 + static_cast<int>(unit); }
  [[nodiscard]] int classifier() const { return 1 + units_; }
  [[nodiscard]] int backward(std::size_t unit) const {
    return 2 * units_ + 1 - static_cast<int>(unit);
  }
  [[nodiscard]] Lifetime whole() const { return {0, 2 * units_ + 2}; }

 private:
  int units_;
};

/// A convolution with the norm behind it.
struct Unit {
  Unit(const ConvSpec& conv_spec, const BlockedShape& output_shape)
      : spec(conv_spec),
        shape(output_shape),
        norm(output_shape.channels, output_shape.images * output_shape.pixels) {}

  const ConvSpec& spec;
  BlockedShape shape;
  NormLayer norm;
  std::unique_ptr<Convolution> conv;
  TensorId raw_id = kNoTensor;
  TensorId gradient_id = kNoTensor;  ///< none for a projection, which uses its block's
  void* raw = nullptr;               ///< the convolution's output
  void* gradient = nullptr;          ///< of the norm's output, masked by the ReLU

  [[nodiscard]] ActivationRead through_norm() const { return {raw, true, norm.affine()}; }
};

/// One residual block.
struct Block {
  std::vector<Unit*> units;
  Unit* projection = nullptr;
  std::optional<DownsamplingShortcut> shortcut;
  TensorId out_id = kNoTensor;
  TensorId residual_id = kNoTensor;           ///< of a downsampling shortcut
  TensorId shortcut_gradient_id = kNoTensor;  ///< of any shortcut that is not the identity
  const void* input = nullptr;
  void* out = nullptr;
  void* residual = nullptr;
  void* shortcut_gradient = nullptr;

  [[nodiscard]] Unit& last() const { return *units.back(); }
};

struct ResnetEngineOptions {
  Dtype dtype = Dtype::kFp32;
  bool keep_activations = false;     ///< for activations(); costs memory
  StepObserver* observer = nullptr;  ///< of train(); outlives the engine
};

class ResnetEngine final : public StepEngine {
 public:
  /// Throws dnnl::error.
  ResnetEngine(const Model& model, std::uint32_t microbatch, const ResnetEngineOptions& options);

  TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                    std::span<float> gradient, std::span<float> statistics,
                    GradientSink& sink) override;
  EvaluationResult evaluate(const Weights& weights, const Batch& batch) override;
  [[nodiscard]] std::uint32_t microbatch() const override { return microbatch_; }

  /// Logits of the last pass, images x classes.
  [[nodiscard]] std::span<const double> logits() const { return classifier_.logits(); }
  [[nodiscard]] const MemoryPlan& memory_plan() const { return plan_; }

  /// With keep_activations and fp32: calls visit(shape, values) with the outputs of every ReLU in
  /// the last train(), in forward order, blocked. For checks against other implementations.
  template <typename Visit>
  void visit_activations(const Visit& visit) const;

 private:
  void build_units();
  void build_blocks();
  void build_convolution(std::size_t index, const ConvUse& use);
  void plan_stem();
  void plan_block(std::size_t index, std::size_t first_unit);
  void plan_memory();
  void bind();
  void bind_block(Block& block, const void* input);

  /// Copies the images, and converts the weights to the kernels' layouts if they changed.
  void load(const Weights& weights, const Batch& batch);
  /// Computes up to the logits of the first `count` images; prepare_norm(unit) sets how a norm
  /// normalises.
  template <typename PrepareNorm>
  void forward(const Weights& weights, std::size_t count, bool training,
               const PrepareNorm& prepare_norm);
  void join(Block& block);
  void measure(Unit& unit, const Weights& weights, std::span<float> statistics);
  void use_running(Unit& unit, const Weights& weights);

  void derive(Unit& unit, std::span<float> gradient);
  void backward(std::size_t block, std::span<float> gradient, GradientSink& sink);
  void backward_shortcut(Block& block, std::span<float> gradient, GradientSink& sink);
  void backward_stem(std::span<float> gradient, GradientSink& sink);
  /// How the gradient of block `index`'s input is written.
  [[nodiscard]] GradientWrite input_gradient_of(std::size_t index);

  [[nodiscard]] std::size_t offset(std::size_t parameter) const {
    return model_.parameters[parameter].offset;
  }
  [[nodiscard]] std::size_t statistic_offset(std::size_t statistic) const {
    return model_.statistics[statistic].offset;
  }
  [[nodiscard]] ClassifierWeights classifier_weights(const Weights& weights) const;
  void passed(StepPart part, const Unit* unit = nullptr) const {
    if (options_.observer != nullptr) {
      options_.observer->passed(part, unit != nullptr ? &unit->spec : nullptr);
    }
  }
  [[nodiscard]] Lifetime kept(int first, int last) const;
  TensorId plan_values(const std::string& name, std::size_t count, Lifetime lifetime) {
    return plan_.add(name, count * bytes_of(options_.dtype), lifetime);
  }

  const Model& model_;
  std::uint32_t microbatch_;
  ResnetEngineOptions options_;
  ConvContext context_;
  std::deque<Unit> units_;  ///< in the order of convolutions_of(); blocks point at them
  std::vector<Block> blocks_;
  StepTimes times_;
  std::optional<MaxPool> pool_;
  Classifier classifier_;

  MemoryPlan plan_;
  Arena arena_;
  TensorId image_id_ = kNoTensor;
  TensorId stem_out_id_ = kNoTensor;
  TensorId pool_places_id_ = kNoTensor;
  TensorId pool_gradient_id_ = kNoTensor;
  TensorId scratch_id_ = kNoTensor;
  void* images_ = nullptr;
  void* stem_out_ = nullptr;  ///< input of the first block: after norm, ReLU and pooling
  std::uint8_t* pool_places_ = nullptr;
  void* pool_gradient_ = nullptr;  ///< of the pooling's output
  std::optional<std::uint64_t> loaded_version_;
};

/// make_cpu_engine (nn/cpu/cpu_engine.hpp) with options, for checks.
[[nodiscard]] Result<std::unique_ptr<ResnetEngine>> make_resnet_engine(
    const Model& model, std::uint32_t microbatch, const ResnetEngineOptions& options);

template <typename Visit>
void ResnetEngine::visit_activations(const Visit& visit) const {
  const auto show = [&](const Unit& unit) {
    AlignedBuffer<float> values(unit.shape.elements());
    context_.kernels->normalise_relu(unit.shape, unit.raw, unit.norm.affine(), values.data());
    visit(unit.shape, static_cast<const float*>(values.data()));
  };
  show(units_.front());
  for (const Block& block : blocks_) {
    for (std::size_t i = 0; i + 1 < block.units.size(); ++i) {
      show(*block.units[i]);
    }
    visit(block.last().shape, static_cast<const float*>(block.out));
  }
}

}  // namespace mayfly::nn::cpu
