#pragma once

// The CUDA engine's step without a device: the product's plan and executor, with the host versions
// of the kernels, convolutions in plain loops, and host memory that is filled with NaN first.

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "nn/cuda/step_executor.hpp"
#include "nn/cuda/step_plan.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

/// NHWC convolutions, short enough to be compared with the definition; fp32 sums of products in one
/// fixed order.
class NaiveConvolver final : public Convolver {
 public:
  explicit NaiveConvolver(const StepPlan& plan) : plan_(plan) {}
  Result<void> convolve(std::size_t operation, const Convolve& what, const ConvTensors& tensors,
                        Stream stream) override;

 private:
  const StepPlan& plan_;
};

class ReferenceExecutor final : public StepEngine {
 public:
  ReferenceExecutor(const Model& model, std::uint32_t microbatch,
                    const StepPlanOptions& options = {});

  TrainResult train(const Weights& weights, const Batch& batch, float label_smoothing,
                    std::span<float> gradient, std::span<float> statistics,
                    GradientSink& sink) override;
  EvaluationResult evaluate(const Weights& weights, const Batch& batch) override;
  [[nodiscard]] std::uint32_t microbatch() const override { return microbatch_; }
  [[nodiscard]] bool holds_training_set() const { return plan_.set.has_value(); }
  /// For a plan with a set, before the first training: copies the images to the "device".
  void take_training_set(const TrainingSet& set);

  [[nodiscard]] const StepPlan& plan() const { return plan_; }

 private:
  void load(const Weights& weights);
  void take_images(const Batch& batch, TensorId images);
  void take_labels(const Batch& batch, TensorId labels, const LossInput& input);
  void run(const OperationRange& range);

  std::uint32_t microbatch_;
  StepPlan plan_;
  AlignedBuffer<std::byte> memory_;
  NaiveConvolver convolver_;
  StepExecutor executor_;
};

}  // namespace mayfly::nn::cuda
