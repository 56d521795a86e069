#pragma once

// The step engine of a CPU, and an observer of the time that its parts take.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "nn/dtype.hpp"
#include "nn/memory_plan.hpp"
#include "nn/model.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cpu {

/// Prepares the process for reproducible arithmetic: limits oneDNN to the chosen instruction set
/// and to one thread per caller. Call once, before the first engine. `isa` is "auto", "avx512",
/// "avx2" or "portable"; the result names the choice and belongs in the job's fingerprint: bits
/// differ between instruction sets. kUnsupported if the machine lacks the one asked for, or, with
/// bf16, AVX512-BF16.
[[nodiscard]] Result<std::string> select_isa(const std::string& isa, Dtype dtype = Dtype::kFp32);

enum class StepPart {
  kOutside,              ///< work of the caller since the engine's last step
  kLoad,                 ///< images copied; new weights converted to the kernels' layouts
  kForward,              ///< a convolution with the statistics of its norm
  kForwardElementwise,   ///< norm, ReLU, shortcut and pooling where they are passes of their own
  kClassifier,           ///< pooling, logits, loss, and their gradients
  kBackward,             ///< both gradients of a convolution with the parts fused into them
  kBackwardElementwise,  ///< the rest of backward
};

/// If an engine has an observer, it reports each finished part on its own thread. The engine reads
/// no clock; the observer does. Without an observer, only a null check per layer remains.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  /// Everything since the previous call was `part`; `layer` is the convolution it belongs to, by
  /// its address in the engine's Model, or null. Must not throw or call the engine.
  virtual void passed(StepPart part, const ConvSpec* layer) = 0;
};

struct CpuEngineOptions {
  Dtype dtype = Dtype::kFp32;  ///< of activations; as given to select_isa
  /// Called for every unit's pass in train(); outlives the engine.
  StepObserver* observer = nullptr;
};

/// Builds the engine of one compute thread: all primitives and one arena for everything a step
/// touches. Must be called, and the engine used, on the same thread (oneDNN's thread count is per
/// thread). `model` must outlive the engine. kInvalidInput for an impossible microbatch,
/// kUnsupported if oneDNN cannot build a layer or the host has too little memory.
[[nodiscard]] Result<std::unique_ptr<StepEngine>> make_cpu_engine(
    const Model& model, std::uint32_t microbatch, const CpuEngineOptions& options = {});

/// Where that engine places its tensors. Builds a whole engine and destroys it; same errors.
[[nodiscard]] Result<MemoryPlan> memory_plan_of(const Model& model, std::uint32_t microbatch,
                                                Dtype dtype = Dtype::kFp32);

}  // namespace mayfly::nn::cpu
