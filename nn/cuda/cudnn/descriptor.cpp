#include "nn/cuda/cudnn/descriptor.hpp"

#include "base/try_assign.hpp"

#include <fmt/format.h>

#include <array>

namespace mayfly::nn::cuda::cudnn {
namespace {

// Descriptions of devices exist since 9.8; NVIDIA's own samples use them from here on.
constexpr std::size_t kDescriptionsSince = 91100;

}  // namespace

Result<void> check(cudnnStatus_t status, const char* what_we_did) {
  if (status == CUDNN_STATUS_SUCCESS) {
    return {};
  }
  std::array<char, 1024> words{};
  cudnnGetLastErrorString(words.data(), words.size());
  words.back() = '\0';
  const Errc code = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED
                        ? Errc::kUnsupported
                        : Errc::kInvalidInput;
  return Error{code, fmt::format("cuDNN, {}: {}{}{}", what_we_did, cudnnGetErrorString(status),
                                 words.front() == '\0' ? "" : ": ", words.data())};
}

Descriptor::~Descriptor() {
  if (handle_ != nullptr) {
    (void)cudnnBackendDestroyDescriptor(handle_);
  }
}

Result<Descriptor> Descriptor::create(cudnnBackendDescriptorType_t type) {
  Descriptor descriptor;
  TRY(check(cudnnBackendCreateDescriptor(type, &descriptor.handle_), "creating a descriptor"));
  return descriptor;
}

Builder::Builder(cudnnBackendDescriptorType_t type) {
  Result<Descriptor> created = Descriptor::create(type);
  if (created.ok()) {
    descriptor_ = std::move(created).value();
  } else {
    outcome_ = std::move(created).error();
  }
}

Builder& Builder::set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* values) {
  if (outcome_.ok()) {
    const std::string what = fmt::format("setting attribute {}", static_cast<int>(name));
    outcome_ =
        check(cudnnBackendSetAttribute(descriptor_.get(), name, type, count, values), what.c_str());
  }
  return *this;
}

Builder& Builder::set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& value : values) {
    handles.push_back(value.get());
  }
  return set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(handles.size()),
                 handles.data());
}

Result<Descriptor> Builder::finalise() {
  if (outcome_.ok()) {
    outcome_ = check(cudnnBackendFinalize(descriptor_.get()), "finishing a descriptor");
  }
  if (!outcome_.ok()) {
    return outcome_.error();
  }
  return std::move(descriptor_);
}

Result<PlanningTarget> PlanningTarget::described(std::string_view json) {
  if (cudnnGetVersion() < kDescriptionsSince) {
    return Error{Errc::kUnsupported, "planning without a device needs cuDNN 9.11 or newer"};
  }
  Builder builder(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  builder.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(json));
  TRY_ASSIGN(auto device, builder.finalise());
  return PlanningTarget(std::move(device));
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

}  // namespace mayfly::nn::cuda::cudnn
