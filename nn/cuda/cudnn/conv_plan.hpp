#pragma once

// Private to nn/cuda: one convolution as cuDNN will compute it, chosen before the first step.
//
// The choice must be the same on every worker and in every run, or their bits differ. So nothing is
// timed then: an engine is named by a table that was made before (nn/cuda/engine_table), or the
// first one that cuDNN's heuristics offer is taken. Either way it is one that is deterministic,
// needs no compiler at run time (its choice could depend on the driver), stays within a workspace,
// and for fp32 really multiplies in fp32. With equal GPU, cuDNN and table the choice is equal; all
// three are in the job's fingerprint.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nn/cuda/conv_shape.hpp"
#include "nn/cuda/cudnn/planning_target.hpp"
#include "nn/cuda/engine_name.hpp"
#include "nn/dtype.hpp"

namespace mayfly::nn::cuda::cudnn {

/// Scratch that all convolutions of an engine share, at most.
inline constexpr std::size_t kWorkspaceBytesMax = std::size_t{1} << 30;

class ConvPlan {
 public:
  /// Activations, filter and gradients all of `dtype`, sums in fp32. kUnsupported if no engine that
  /// cuDNN offers will do, as is often so of a fused pass; the text says for which convolution, how
  /// many were offered and why the last was left.
  [[nodiscard]] static Result<ConvPlan> choose(const ConvShape& shape, ConvPass pass, Dtype dtype,
                                               const PlanningTarget& target);

  /// All that cuDNN offers and we would take, each once, in its order, at most `max`; at least one.
  /// kUnsupported as choose(), which takes the first.
  [[nodiscard]] static Result<std::vector<ConvPlan>> offered(const ConvShape& shape, ConvPass pass,
                                                             Dtype dtype,
                                                             const PlanningTarget& target,
                                                             std::size_t max);
  /// By that engine, even if it is not offered. kUnsupported, in one line, if cuDNN has no such
  /// engine for this convolution, or it is one that we would not take.
  [[nodiscard]] static Result<ConvPlan> by(const EngineName& engine, const ConvShape& shape,
                                           ConvPass pass, Dtype dtype,
                                           const PlanningTarget& target);

  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] const EngineName& engine() const { return engine_; }
  /// How many engines cuDNN offered before ours was taken, itself included; 0 for one by name.
  [[nodiscard]] std::size_t rank() const { return rank_; }

  /// The places as cuDNN wants them, for run(). Once per place, not per step.
  [[nodiscard]] Result<Descriptor> bind(const ConvTensors& tensors) const;
  /// Starts the convolution on the stream of the handle.
  [[nodiscard]] Result<void> run(cudnnHandle_t handle, const Descriptor& bound) const;

 private:
  static Result<ConvPlan> finalised(const Descriptor& configuration, const ConvShape& shape,
                                    ConvPass pass, Dtype dtype, const PlanningTarget& target);

  ConvShape shape_;
  ConvPass pass_ = ConvPass::kForward;
  Descriptor plan_;
  std::size_t workspace_bytes_ = 0;
  EngineName engine_;
  std::size_t rank_ = 0;
};

}  // namespace mayfly::nn::cuda::cudnn
