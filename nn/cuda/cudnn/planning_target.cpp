#include "nn/cuda/cudnn/planning_target.hpp"

#include <fmt/format.h>

namespace mayfly::nn::cuda::cudnn {
namespace {

// Descriptions of devices exist since 9.8; NVIDIA's own samples use them from here on.
constexpr std::size_t kDescriptionsSince = 91100;

}  // namespace

Result<PlanningTarget> PlanningTarget::described(std::string_view json) {
  if (cudnnGetVersion() < kDescriptionsSince) {
    return Error{Errc::kUnsupported, "planning without a device needs cuDNN 9.11 or newer"};
  }
  Builder builder(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  builder.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(json));
  Result<Descriptor> device = builder.finalise();
  if (!device.ok()) {
    return std::move(device).error();
  }
  return PlanningTarget(std::move(device).value());
}

void PlanningTarget::aim(Builder& builder, cudnnBackendAttributeName_t handle_name) const {
  if (handle_ != nullptr) {
    builder.set(handle_name, handle_);
  }
}

void PlanningTarget::aim(Builder& builder, cudnnBackendAttributeName_t handle_name,
                         cudnnBackendAttributeName_t device_name) const {
  aim(builder, handle_name);
  describe(builder, device_name);
}

void PlanningTarget::describe(Builder& builder, cudnnBackendAttributeName_t device_name) const {
  if (handle_ == nullptr) {
    builder.set(device_name, device_);
  }
}

Result<std::string> describe_device(int device) {
  Builder builder(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  builder.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, static_cast<std::int32_t>(device));
  Result<Descriptor> descriptor = builder.finalise();
  if (!descriptor.ok()) {
    return std::move(descriptor).error();
  }
  constexpr std::size_t kCharactersMax = 1 << 16;
  const Result<std::vector<char>> text = values_of<char>(
      descriptor.value(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, kCharactersMax);
  if (!text.ok()) {
    return text.error();
  }
  return std::string(text.value().begin(), text.value().end());
}

}  // namespace mayfly::nn::cuda::cudnn
