#pragma once

// The exports of libmayfly_cuda.so: the CUDA engine as a module (base/module_file.hpp), because not
// every machine has CUDA and cuDNN. engine/network/device.hpp loads it for --device cuda.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "nn/cuda/image_source.hpp"
#include "nn/device_engine.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda {

/// A GPU that no other worker of this machine uses.
inline constexpr int kFreeDevice = -1;
/// The GPU that this process's environment names, or else a free one.
inline constexpr int kAnyDevice = -2;

/// The properties of the engine to build.
struct EngineRequest {
  std::uint32_t microbatch = 0;
  Dtype dtype = Dtype::kFp32;
  int device = kAnyDevice;
  /// Bytes that the caller will allocate besides the engine in the GPU's memory, for sums of
  /// gradients.
  std::size_t sums_bytes = 0;
  /// Whether the engine also keeps momentum, and therefore has an optimizer().
  bool keeps_state = false;
  /// To be copied to the device if there is room for it; null: images come from the host. Used
  /// only while the engine is made.
  const TrainingSet* training_set = nullptr;
};

struct CudaModule {
  const char* build;  ///< module_build() of the program that may load it
  /// Whether this machine can run the engine on a GPU. If so, identity_of() of each kind of GPU
  /// that it may be (one, if `device` is a number): name, architecture and version of cuDNN, which
  /// decide the bits; else kUnsupported with one line that says what is missing. Cheap; leaves
  /// nothing running.
  Result<std::vector<std::string>> (*probe)(int device);
  /// Builds the engine; it must be used on the same thread. `model` must outlive it. Errors in one
  /// line: as probe(); kRefused if every GPU of this machine is taken; kInvalidInput or
  /// kUnsupported for a microbatch that is impossible or does not fit beside the sums.
  Result<std::unique_ptr<DeviceEngine>> (*make)(const Model& model, const EngineRequest& request);
};

/// The one symbol that the module exports.
inline constexpr const char* kCudaModuleSymbol = "mayfly_cuda_module";
using CudaModuleFunction = const CudaModule* (*)();

}  // namespace mayfly::nn::cuda
