#pragma once

// Private to nn/cuda: one convolution in the form in which cuDNN computes it, chosen before the
// first step.
//
// The choice must be the same on every worker and in every run, or their bits differ. So nothing is
// timed. The first engine is taken that cuDNN's heuristics offer and that is deterministic, needs
// no compiler at run time (its choice could depend on the driver), stays within a workspace, and
// for fp32 really multiplies in fp32. With an equal GPU and an equal cuDNN the choice is equal;
// both are in the job's fingerprint (ADR 31).

#include <cstddef>

#include "nn/cuda/conv_shape.hpp"
#include "nn/cuda/cudnn/descriptor.hpp"

namespace mayfly::nn::cuda::cudnn {

/// Most scratch memory, which all convolutions of an engine share.
inline constexpr std::size_t kWorkspaceBytesMax = std::size_t{1} << 30;

class ConvPlan {
 public:
  /// Activations, filter and gradients are all of the key's type, sums are fp32. kUnsupported if
  /// cuDNN offers no engine that meets the conditions above; the text says for which convolution,
  /// how many engines were offered and why the last was left out.
  [[nodiscard]] static Result<ConvPlan> choose(const ConvKey& key, const PlanningTarget& target);

  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// The index of the engine among those that cuDNN offered, from 1.
  [[nodiscard]] std::size_t rank() const { return rank_; }

  /// The addresses of the tensors in the form that run() needs. Made once per address, not per
  /// step.
  [[nodiscard]] Result<Descriptor> bind(const ConvTensors& tensors) const;
  /// Starts the convolution on the stream of the handle.
  [[nodiscard]] Result<void> run(cudnnHandle_t handle, const Descriptor& bound) const;

 private:
  static Result<ConvPlan> finalised(const Descriptor& configuration, const ConvKey& key,
                                    const PlanningTarget& target);

  Descriptor plan_;
  std::size_t workspace_bytes_ = 0;
  std::size_t rank_ = 0;
};

}  // namespace mayfly::nn::cuda::cudnn
