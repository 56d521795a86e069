#pragma once

// Private to nn/cuda: the convolutions of a step plan by cuDNN.

#include <map>
#include <utility>
#include <vector>

#include "nn/cuda/cudnn/conv_plan.hpp"
#include "nn/cuda/step_executor.hpp"

namespace mayfly::nn::cuda {

/// How each convolution of a network is computed; equal ones share a plan.
class ConvPlans {
 public:
  /// Plans all passes of all layers. kUnsupported as ConvPlan::choose.
  [[nodiscard]] static Result<ConvPlans> choose(const Model& model, std::uint32_t microbatch,
                                                Dtype dtype, const cudnn::PlanningTarget& target);

  [[nodiscard]] const cudnn::ConvPlan& of(const ConvShape& shape, ConvPass pass) const;
  [[nodiscard]] std::size_t size() const { return plans_.size(); }

 private:
  std::map<std::pair<ConvShape, ConvPass>, cudnn::ConvPlan> plans_;
};

/// One thread at a time. Handle and plans must outlive it.
class CudnnConvolver final : public Convolver {
 public:
  /// `handle` is set to the stream that everything is given to.
  CudnnConvolver(cudnnHandle_t handle, const ConvPlans& plans) : handle_(handle), plans_(plans) {}

  /// Tells cuDNN where all tensors are, once, before the first step.
  [[nodiscard]] Result<void> bind(const StepPlan& plan, const StepExecutor& executor);

  [[nodiscard]] Result<void> convolve(std::size_t operation, const Convolve& what,
                                      const ConvTensors& tensors, Stream stream) override;

 private:
  struct Bound {
    const cudnn::ConvPlan* plan = nullptr;
    cudnn::Descriptor tensors;
  };

  cudnnHandle_t handle_;
  const ConvPlans& plans_;
  std::vector<Bound> bound_;  ///< by operation; empty where it is no convolution
};

}  // namespace mayfly::nn::cuda
