#pragma once

// Private to nn/cuda: one descriptor of cuDNN's graph API, owned. Everything of that API is a
// descriptor with attributes: created, given its attributes, finalised, and from then on constant.
// Any thread, one at a time.

#include <cudnn_graph.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mayfly::nn::cuda::cudnn {

/// Ok for success; else kUnsupported if cuDNN calls it that, kInvalidInput otherwise, with what we
/// did, the status by name and what cuDNN itself says about it (it names the violated condition).
[[nodiscard]] Result<void> check(cudnnStatus_t status, const char* what_we_did);

/// The type that cuDNN wants to be told of an attribute's values.
template <typename T>
constexpr cudnnBackendAttributeType_t attribute_type();
template <>
constexpr cudnnBackendAttributeType_t attribute_type<std::int64_t>() {
  return CUDNN_TYPE_INT64;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<std::int32_t>() {
  return CUDNN_TYPE_INT32;
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
constexpr cudnnBackendAttributeType_t attribute_type<char>() {
  return CUDNN_TYPE_CHAR;
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
constexpr cudnnBackendAttributeType_t attribute_type<cudnnPointwiseMode_t>() {
  return CUDNN_TYPE_POINTWISE_MODE;
}
template <>
constexpr cudnnBackendAttributeType_t attribute_type<cudnnGenStatsMode_t>() {
  return CUDNN_TYPE_GENSTATS_MODE;
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
constexpr cudnnBackendAttributeType_t attribute_type<cudnnBackendKnobType_t>() {
  return CUDNN_TYPE_KNOB_TYPE;
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
  /// Text, without its end mark.
  Builder& set(cudnnBackendAttributeName_t name, std::span<const char> text) {
    return set_raw(name, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(text.size()), text.data());
  }
  Builder& set(cudnnBackendAttributeName_t name, bool value) {
    return set_raw(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  /// Another descriptor, which must be finalised; cuDNN keeps what it needs of it.
  Builder& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    const cudnnBackendDescriptor_t handle = value.get();
    return set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  }

  Builder& set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values);

  /// The finished descriptor, or what went wrong first.
  [[nodiscard]] Result<Descriptor> finalise();

 private:
  Builder& set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, const void* values);

  Descriptor descriptor_;
  Result<void> outcome_;
};

/// The number, or numbers, that a finished descriptor has for an attribute, at most `max` of them.
template <typename T>
[[nodiscard]] Result<std::vector<T>> values_of(const Descriptor& descriptor,
                                               cudnnBackendAttributeName_t name, std::size_t max) {
  std::vector<T> values(max);
  std::int64_t count = 0;
  Result<void> read =
      check(cudnnBackendGetAttribute(descriptor.get(), name, attribute_type<T>(),
                                     static_cast<std::int64_t>(max), &count, values.data()),
            "reading an attribute");
  if (!read.ok()) {
    return std::move(read).error();
  }
  values.resize(std::min(max, static_cast<std::size_t>(count)));
  return values;
}

}  // namespace mayfly::nn::cuda::cudnn
