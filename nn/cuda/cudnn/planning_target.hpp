#pragma once

// Private to nn/cuda: what a convolution is planned for: the device behind a cuDNN handle, or a
// device that is only described, so that what cuDNN offers for it can be checked on a machine
// without one (docs/gpu.md).

#include <string>
#include <string_view>

#include "nn/cuda/cudnn/descriptor.hpp"

namespace mayfly::nn::cuda::cudnn {

class PlanningTarget {
 public:
  /// The present device of a handle, which must outlive the target and its plans.
  explicit PlanningTarget(cudnnHandle_t handle) : handle_(handle) {}

  /// A device as cuDNN writes it down in JSON (describe_device). kInvalidInput if a field is
  /// missing; kUnsupported with a cuDNN before 9.11.
  [[nodiscard]] static Result<PlanningTarget> described(std::string_view json);

  /// Gives a graph, a search for engines or a plan the target, by the attribute that takes it.
  void aim(Builder& builder, cudnnBackendAttributeName_t handle_name) const;
  void aim(Builder& builder, cudnnBackendAttributeName_t handle_name,
           cudnnBackendAttributeName_t device_name) const;
  /// A search for engines takes no handle: its graph has it.
  void describe(Builder& builder, cudnnBackendAttributeName_t device_name) const;

 private:
  PlanningTarget(Descriptor device) : device_(std::move(device)) {}

  cudnnHandle_t handle_ = nullptr;
  Descriptor device_;  // instead of the handle
};

/// The present CUDA device in cuDNN's words, to be kept as a description.
[[nodiscard]] Result<std::string> describe_device(int device);

}  // namespace mayfly::nn::cuda::cudnn
