#pragma once

// Private to nn/cuda: the convolutions of a step plan by cuDNN.

#include <map>
#include <vector>

#include "nn/cuda/cudnn/conv_plan.hpp"
#include "nn/cuda/step_executor.hpp"

namespace mayfly::nn::cuda {

/// How each convolution of a network is computed; equal ones share a plan.
class ConvPlans {
 public:
  /// Plans all passes of all layers, each by the engine that cudnn::ConvPlan chooses. kUnsupported
  /// if one has none.
  [[nodiscard]] static Result<ConvPlans> choose(const Model& model, std::uint32_t microbatch,
                                                Dtype dtype, const cudnn::PlanningTarget& target);

  /// The plan of a pass of the network.
  [[nodiscard]] const cudnn::ConvPlan& of(const ConvShape& shape, ConvPass pass) const;
  /// Sets the options of a step plan that depend on the convolutions. The options must not outlive
  /// this object.
  void describe(StepPlanOptions& options, std::uint32_t microbatch) const;

 private:
  Dtype dtype_ = Dtype::kFp32;
  std::map<ConvKey, cudnn::ConvPlan> plans_;
};

/// One thread at a time. Handle and plans must outlive it.
class CudnnConvolver final : public Convolver {
 public:
  /// All work is submitted to the stream that `handle` is set to.
  CudnnConvolver(cudnnHandle_t handle, const ConvPlans& plans) : handle_(handle), plans_(plans) {}

  /// Gives cuDNN the addresses of all tensors, once, before the first step. kUnsupported or
  /// kInvalidInput with the convolution's name if cuDNN rejects one.
  [[nodiscard]] Result<void> bind(const StepPlan& plan, const StepExecutor& executor);

  [[nodiscard]] Result<void> convolve(std::size_t operation, const Convolve& what,
                                      const ConvTensors& tensors, Stream stream) override;

 private:
  struct Bound {
    const cudnn::ConvPlan* plan = nullptr;
    cudnn::Descriptor tensors;
    ConvKey key;
  };

  cudnnHandle_t handle_;
  const ConvPlans& plans_;
  std::vector<Bound> bound_;  ///< by operation; empty for one that is no convolution
};

}  // namespace mayfly::nn::cuda
