#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"
#include "nn/cpu/step_observer.hpp"
#include "nn/dtype.hpp"
#include "nn/memory_plan.hpp"
#include "nn/model.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cpu {

/// Prepares the process for reproducible arithmetic: limits oneDNN to the chosen instruction set
/// and to one thread per caller. Call once, before the first engine. `isa` is "auto", "avx512",
/// "avx2" or "portable"; the result names what is used and belongs in the job's fingerprint: bits
/// differ between instruction sets. kUnsupported if the machine lacks the one asked for, or, with
/// bf16, AVX512-BF16.
[[nodiscard]] Result<std::string> select_isa(const std::string& isa, Dtype dtype = Dtype::kFp32);

struct CpuEngineOptions {
  Dtype dtype = Dtype::kFp32;  ///< of activations; as given to select_isa
  StepObserver* observer =
      nullptr;  ///< told about every unit's pass in train(); outlives the engine
};

/// Builds the engine of one compute thread: all primitives and one arena for everything a step
/// touches. Must be called, and the engine used, on the same thread (oneDNN's thread count is per
/// thread). `model` must outlive the engine. kInvalidInput for an impossible microbatch,
/// kUnsupported if oneDNN cannot build a layer.
[[nodiscard]] Result<std::unique_ptr<StepEngine>> make_cpu_engine(
    const Model& model, std::uint32_t microbatch, const CpuEngineOptions& options = {});

/// Where that engine has its tensors. Builds, and drops, a whole engine; same errors.
[[nodiscard]] Result<MemoryPlan> memory_plan_of(const Model& model, std::uint32_t microbatch,
                                                Dtype dtype = Dtype::kFp32);

}  // namespace mayfly::nn::cpu
