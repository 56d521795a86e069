#pragma once

// Private to nn/cuda: one descriptor of cuDNN's graph API, owned, and the target that convolutions
// are planned for. All objects of that API are descriptors: created, given their attributes,
// finalised, and from then on constant. Any thread, one at a time.

#include <cudnn_graph.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mayfly::nn::cuda::cudnn {

/// Ok for success; else kUnsupported or kInvalidInput, by cuDNN's category, with the action, the
/// name of the status and cuDNN's own text, which names the violated condition.
[[nodiscard]] Result<void> check(cudnnStatus_t status, const char* what_we_did);

/// cuDNN's name for the type of an attribute's values.
template <typename T>
constexpr cudnnBackendAttributeType_t attribute_type();
template <>
constexpr cudnnBackendAttributeType_t attribute_type<std::int64_t>() {
  return CUDNN_TYPE_INT64;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<float>() {
  return CUDNN_TYPE_FLOAT;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<void*>() {
  return CUDNN_TYPE_VOID_PTR;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<cudnnDataType_t>() {
  return CUDNN_TYPE_DATA_TYPE;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<cudnnConvolutionMode_t>() {
  return CUDNN_TYPE_CONVOLUTION_MODE;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<cudnnBackendHeurMode_t>() {
  return CUDNN_TYPE_HEUR_MODE;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<cudnnBackendNumericalNote_t>() {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<cudnnBackendBehaviorNote_t>() {
  return CUDNN_TYPE_BEHAVIOR_NOTE;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<cudnnHandle_t>() {
  return CUDNN_TYPE_HANDLE;
}

class Descriptor {
 public:
  Descriptor() = default;
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  [[nodiscard]] static Result<Descriptor> create(cudnnBackendDescriptorType_t type);

  [[nodiscard]] cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

/// Sets attributes one after the other and remembers the first failure, so that a descriptor is
/// built in one expression:
///   Builder(type).set(NAME, value).set(NAME, values).finalise()
class Builder {
 public:
  explicit Builder(cudnnBackendDescriptorType_t type);

  template <typename T>
  Builder& set(cudnnBackendAttributeName_t name, const T& value) {
    return set_raw(name, attribute_type<T>(), 1, &value);
  }
  template <typename T>
  Builder& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return set_raw(name, attribute_type<T>(), static_cast<std::int64_t>(values.size()),
                   values.data());
  }
  /// Text, without a terminating zero.
  Builder& set(cudnnBackendAttributeName_t name, std::span<const char> text) {
    return set_raw(name, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(text.size()), text.data());
  }
  Builder& set(cudnnBackendAttributeName_t name, bool value) {
    return set_raw(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  /// Another descriptor, which must be finalised and need not be kept.
  Builder& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    const cudnnBackendDescriptor_t handle = value.get();
    return set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  }

  Builder& set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values);

  /// The finished descriptor, or the first error.
  [[nodiscard]] Result<Descriptor> finalise();

 private:
  Builder& set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, const void* values);

  Descriptor descriptor_;
  Result<void> outcome_;
};

/// The values of an attribute of a finished descriptor, at most `max` of them.
template <typename T>
[[nodiscard]] Result<std::vector<T>> values_of(const Descriptor& descriptor,
                                               cudnnBackendAttributeName_t name, std::size_t max) {
  std::vector<T> values(max);
  std::int64_t count = 0;
  TRY(check(cudnnBackendGetAttribute(descriptor.get(), name, attribute_type<T>(),
                                     static_cast<std::int64_t>(max), &count, values.data()),
            "reading an attribute"));
  values.resize(std::min(max, static_cast<std::size_t>(count)));
  return values;
}

/// The device for which a convolution is planned: that of a cuDNN handle, or one that is only
/// described, so that cuDNN's offers for it can be checked on a machine without a GPU
/// (docs/gpu.md).
class PlanningTarget {
 public:
  /// The device of a handle, which must outlive the target and its plans.
  explicit PlanningTarget(cudnnHandle_t handle) : handle_(handle) {}

  /// A device as cuDNN describes it in JSON. kInvalidInput if a field is
  /// missing; kUnsupported with a cuDNN before 9.11.
  [[nodiscard]] static Result<PlanningTarget> described(std::string_view json);

  /// Sets the target of a graph or a plan, by the attributes that take it.
  void aim(Builder& builder, cudnnBackendAttributeName_t handle_name) const;
  void aim(Builder& builder, cudnnBackendAttributeName_t handle_name,
           cudnnBackendAttributeName_t device_name) const;
  /// Sets the target of a search for engines, which takes no handle: its graph has it.
  void describe(Builder& builder, cudnnBackendAttributeName_t device_name) const;

 private:
  PlanningTarget(Descriptor device) : device_(std::move(device)) {}

  cudnnHandle_t handle_ = nullptr;
  Descriptor device_;  // instead of the handle
};

}  // namespace mayfly::nn::cuda::cudnn
