#pragma once

// Private to nn/cuda: executes the operations of a step plan: each becomes calls of kernels, or of
// a convolver. It does not depend on where it runs: with the kernels' host versions, a convolver
// with loops, and host memory, the same code computes the step on a CPU; so it is tested against
// nn/cpu.

#include <cstddef>

#include "base/result.hpp"
#include "nn/cuda/kernels/kernels.hpp"
#include "nn/cuda/step_plan.hpp"

namespace mayfly::nn::cuda {

/// The port to the computation of convolutions.
class Convolver {
 public:
  virtual ~Convolver() = default;
  /// Queues a Convolve on `stream`. `operation` is its index in the plan; `tensors` are always the
  /// same for the same operation.
  [[nodiscard]] virtual Result<void> convolve(std::size_t operation, const Convolve& what,
                                              const ConvTensors& tensors, Stream stream) = 0;
};

/// One thread at a time. All arguments must outlive it.
class StepExecutor {
 public:
  /// `memory` has plan.memory.total() bytes, 256-byte aligned.
  StepExecutor(const StepPlan& plan, const Kernels& kernels, Convolver& convolver, void* memory)
      : plan_(plan),
        kernels_(kernels),
        convolver_(convolver),
        memory_(static_cast<std::byte*>(memory)) {}

  /// Queues operations on `stream`, in order, until one cannot be started: kUnsupported, with its
  /// name and the CUDA error. May be captured in a CUDA graph.
  [[nodiscard]] Result<void> run(const OperationRange& range, Stream stream);

  /// Null for kNoTensor.
  [[nodiscard]] void* at(TensorId id) const;
  [[nodiscard]] float* floats(TensorId id) const { return static_cast<float*>(at(id)); }
  /// The addresses of a convolution's tensors.
  [[nodiscard]] ConvTensors tensors_of(const Convolve& convolve) const;

 private:
  struct Step;  // one call of run()

  const StepPlan& plan_;
  const Kernels& kernels_;
  Convolver& convolver_;
  std::byte* memory_;
};

}  // namespace mayfly::nn::cuda
