#pragma once

// Private to nn/cuda: one convolution as cuDNN will compute it, chosen before the first step.
//
// The choice must be the same on every worker and in every run, or their bits differ. So nothing is
// timed: the first engine that cuDNN's heuristics offer is taken, out of those that are
// deterministic, need no compiler at run time (their choice could depend on the driver), stay
// within a workspace, and for fp32 really multiply in fp32. With equal GPU and cuDNN the choice is
// equal; both are in the job's fingerprint.

#include <cstddef>
#include <cstdint>
#include <string>

#include "nn/cuda/conv_shape.hpp"
#include "nn/cuda/cudnn/planning_target.hpp"
#include "nn/dtype.hpp"

namespace mayfly::nn::cuda::cudnn {

/// Scratch that all convolutions of an engine share, at most.
inline constexpr std::size_t kWorkspaceBytesMax = std::size_t{1} << 30;

class ConvPlan {
 public:
  /// Activations, filter and gradients all of `dtype`, sums in fp32. kUnsupported if no engine that
  /// cuDNN offers will do; the text says for which convolution, how many were offered and why the
  /// last was left.
  [[nodiscard]] static Result<ConvPlan> choose(const ConvShape& shape, ConvPass pass, Dtype dtype,
                                               const PlanningTarget& target);

  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// cuDNN's name of the engine with its knobs, for example "eng34_k2=2_k3=0".
  [[nodiscard]] const std::string& engine() const { return engine_; }
  /// How many engines cuDNN offered before ours was taken, itself included.
  [[nodiscard]] std::size_t rank() const { return rank_; }

  /// The places as cuDNN wants them, for run(). Once per place, not per step.
  [[nodiscard]] Result<Descriptor> bind(const ConvTensors& tensors) const;
  /// Starts the convolution on the stream of the handle.
  [[nodiscard]] Result<void> run(cudnnHandle_t handle, const Descriptor& bound) const;

 private:
  Descriptor plan_;
  std::size_t workspace_bytes_ = 0;
  std::string engine_;
  std::size_t rank_ = 0;
};

}  // namespace mayfly::nn::cuda::cudnn
