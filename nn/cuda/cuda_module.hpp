#pragma once

// What libmayfly_cuda.so exports: the CUDA engine as a module (base/module_file.hpp), because CUDA
// and cuDNN are not on every machine. engine/training/device.hpp loads it for --device cuda.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "nn/cuda/engine_choice.hpp"
#include "nn/cuda/engine_table.hpp"
#include "nn/cuda/training_set.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

/// The GPU that this process is told to use by its environment, or else one that no other worker of
/// this machine uses.
inline constexpr int kAnyDevice = -1;

/// What kind of engine is wanted.
struct EngineRequest {
  std::uint32_t microbatch = 0;
  Dtype dtype = Dtype::kFp32;
  int device = kAnyDevice;
  /// What the caller will allocate beside the engine in the GPU's memory, for sums of gradients.
  std::size_t sums_bytes = 0;
  /// Whether the engine keeps momentum, too, and has an optimizer().
  bool keeps_state = false;
  /// To be copied to the device if there is room for it; null: images come from the host. Used
  /// while the engine is made only.
  const TrainingSet* training_set = nullptr;
  /// Which of cuDNN's engines convolutions are computed with; null: those that it offers first.
  /// Used while the engine is made only.
  const EngineTable* engines = nullptr;
};

/// What a GPU and its libraries are known by.
struct DeviceIdentity {
  std::string text;  ///< identity_of(): name, architecture, version of cuDNN; these decide the bits
  std::string kind;  ///< kind_of(): of its engine table
};

struct CudaModule {
  const char* build;  ///< module_build() of the program that may load it
  /// Whether this machine can run the engine on a GPU (kAnyDevice: on the first): what that is;
  /// else kUnsupported with one line that says what is missing. Cheap; starts nothing that lasts.
  Result<DeviceIdentity> (*probe)(int device);
  /// Builds the engine; it is to be used on the same thread. `model` must outlive it. Errors in one
  /// line: as probe(); kRefused if every GPU of this machine is taken; kInvalidInput or
  /// kUnsupported for a microbatch that is impossible or does not fit beside the sums.
  Result<std::unique_ptr<StepEngine>> (*make)(const Model& model, const EngineRequest& request);
  /// Times cuDNN's engines for these convolutions, one after the other, on the calling thread,
  /// which has no engine. Errors as make(), and whatever cuDNN or the device refuses, in one line.
  Result<void> (*time_engines)(const std::set<ConvKey>& convolutions,
                               const EngineTimingRequest& request, const EngineTimingSink& take);
};

/// The one symbol that the module exports.
inline constexpr const char* kCudaModuleSymbol = "mayfly_cuda_module";
using CudaModuleFunction = const CudaModule* (*)();

}  // namespace mayfly::nn::cuda
