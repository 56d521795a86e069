#pragma once

// Private to nn/cpu. The CPU step engine: walks a CIFAR ResNet forward and backward over fixed
// buffers.
//
// Kept from forward for backward, per convolution: its output (before the norm) and the activation
// after norm and ReLU, which is the next convolution's input. Backward needs three more buffers,
// whose roles rotate from block to block:
//   joint   gradient of the block's output from the next block's first convolution; after the join
//   it
//           is the gradient before the ReLU, which also goes down the shortcut
//   addend  the same from the next block's shortcut; afterwards free
//   other   free
// A block turns them into: joint' = other, addend' = joint, other' = addend.

#include <array>
#include <deque>
#include <optional>

#include "nn/cpu/arena.hpp"
#include "nn/cpu/classifier.hpp"
#include "nn/cpu/conv_layer.hpp"
#include "nn/cpu/kernels.hpp"
#include "nn/cpu/norm_layer.hpp"
#include "nn/cpu/shortcut.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cpu {

/// A convolution with the norm behind it, and what forward leaves for backward.
struct Unit {
  Unit(const ConvContext& context, const Kernels& kernels, const ConvSpec& conv_spec,
       bool has_source_gradient, Arena& arena);

  const ConvSpec& spec;
  BlockedShape shape;
  ConvLayer conv;
  NormLayer norm;
  Arena::Slot raw_slot;
  Arena::Slot active_slot;
  float* raw = nullptr;     ///< the convolution's output
  float* active = nullptr;  ///< after norm (and shortcut) and ReLU
};

/// One residual block: its two units and the buffers that backward uses in it.
struct Block {
  Unit* first;
  Unit* second;
  const float* input = nullptr;
  std::optional<DownsamplingShortcut> shortcut;
  float* joint = nullptr;
  float* addend = nullptr;
  float* other = nullptr;
  bool has_addend = false;  ///< false: the next block's shortcut is already in `joint`
};

class ResnetEngine final : public StepEngine {
 public:
  ResnetEngine(const Model& model, std::uint32_t microbatch);

  TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                    std::span<float> gradient, std::span<float> statistics,
                    GradientSink& sink) override;
  EvaluationResult evaluate(const Weights& weights, const Batch& batch) override;
  [[nodiscard]] std::uint32_t microbatch() const override { return microbatch_; }

  /// What the last train() left behind the ReLU of convolution `unit` (in forward order), blocked.
  /// For checks against other implementations.
  [[nodiscard]] const float* activation(std::size_t unit) const { return units_[unit].active; }
  [[nodiscard]] const BlockedShape& activation_shape(std::size_t unit) const {
    return units_[unit].shape;
  }
  [[nodiscard]] std::size_t unit_count() const { return units_.size(); }

 private:
  void build_units();
  void build_blocks();
  void reserve_shared();
  void bind();
  void bind_blocks(const std::array<float*, 3>& gradients, void* scratchpad);

  /// Copies the images, and brings the weights into oneDNN's layouts if they changed.
  void load(const Weights& weights, const Batch& batch);
  /// Up to the logits of the first `count` images; prepare_norm(unit) sets how a norm normalises.
  template <typename PrepareNorm>
  void forward(const Weights& weights, std::size_t count, const PrepareNorm& prepare_norm);
  void measure(Unit& unit, const Weights& weights, std::span<float> statistics);
  void use_running(Unit& unit, const Weights& weights);
  void backward(Block& block, std::span<float> gradient, GradientSink& sink);
  void backward_stem(std::span<float> gradient, GradientSink& sink);

  [[nodiscard]] std::size_t offset(std::size_t parameter) const {
    return model_.parameters[parameter].offset;
  }
  [[nodiscard]] std::size_t statistic_offset(std::size_t statistic) const {
    return model_.statistics[statistic].offset;
  }
  [[nodiscard]] ClassifierWeights classifier_weights(const Weights& weights) const;

  const Model& model_;
  std::uint32_t microbatch_;
  const Kernels& kernels_;
  ConvContext context_;
  Arena arena_;
  std::deque<Unit> units_;  ///< a deque, because blocks point at them; the stem comes first
  std::deque<Block> blocks_;
  Classifier classifier_;
  Arena::Slot image_slot_{};
  Arena::Slot shortcut_slot_{};
  Arena::Slot scratchpad_slot_{};
  std::array<Arena::Slot, 3> gradient_slots_{};
  float* images_ = nullptr;
  float* shortcut_out_ = nullptr;
  float* stem_joint_ = nullptr;
  float* stem_addend_ = nullptr;
  std::optional<std::uint64_t> loaded_version_;
};

}  // namespace mayfly::nn::cpu
