#pragma once

// Private to nn/cuda: the convolutions of a step plan by cuDNN.

#include <map>
#include <utility>
#include <vector>

#include "nn/cuda/cudnn/conv_plan.hpp"
#include "nn/cuda/engine_table.hpp"
#include "nn/cuda/step_executor.hpp"

namespace mayfly::nn::cuda {

/// How each convolution of a network is computed; equal ones share a plan.
class ConvPlans {
 public:
  /// Plans all passes of all layers: each by the engine that the table names, where that is
  /// possible, else by the first that cuDNN offers and we take. `table` may be null. kUnsupported
  /// as ConvPlan::choose. A fused pass is left out where cuDNN has none, or the table says so.
  /// What the device has refused is not taken again: a fused pass is left out then, for another
  /// the next engine that cuDNN offers is taken; kUnsupported if there is none.
  [[nodiscard]] static Result<ConvPlans> choose(const Model& model, std::uint32_t microbatch,
                                                Dtype dtype, const cudnn::PlanningTarget& target,
                                                const EngineTable* table = nullptr,
                                                const std::vector<EngineRefusal>& refused = {});

  [[nodiscard]] bool has(const ConvShape& shape, ConvPass pass) const;
  /// One that it has: every pass that is not fused.
  [[nodiscard]] const cudnn::ConvPlan& of(const ConvShape& shape, ConvPass pass) const;
  /// Sets what a step plan wants to know of them. The options must not outlive them.
  void describe(StepPlanOptions& options, std::uint32_t microbatch) const;
  [[nodiscard]] std::size_t size() const { return plans_.size(); }
  [[nodiscard]] const EngineUse& use() const { return use_; }

 private:
  Result<cudnn::ConvPlan> plan(const ConvKey& key, const cudnn::PlanningTarget& target,
                               const EngineTable* table);

  std::map<std::pair<ConvShape, ConvPass>, cudnn::ConvPlan> plans_;
  EngineUse use_;
};

/// One thread at a time. Handle and plans must outlive it.
class CudnnConvolver final : public Convolver {
 public:
  /// `handle` is set to the stream that everything is given to.
  CudnnConvolver(cudnnHandle_t handle, const ConvPlans& plans) : handle_(handle), plans_(plans) {}

  /// Tells cuDNN where all tensors are, once, before the first step. The first that it refuses is
  /// the error; the others are bound all the same, and convolve() says it again of each.
  [[nodiscard]] Result<void> bind(const StepPlan& plan, const StepExecutor& executor);

  [[nodiscard]] Result<void> convolve(std::size_t operation, const Convolve& what,
                                      const ConvTensors& tensors, Stream stream) override;

 private:
  struct Bound {
    const cudnn::ConvPlan* plan = nullptr;
    Result<cudnn::Descriptor> tensors = cudnn::Descriptor();
  };

  cudnnHandle_t handle_;
  const ConvPlans& plans_;
  std::vector<Bound> bound_;  ///< by operation; empty where it is no convolution
};

}  // namespace mayfly::nn::cuda
