#pragma once

#include <memory>
#include <string>

#include "base/result.hpp"
#include "nn/cpu/memory_plan.hpp"
#include "nn/cpu/step_observer.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cpu {

/// Prepares the process for reproducible arithmetic: limits oneDNN to the chosen instruction set
/// and to one thread per caller. Call once, before the first engine. `isa` is "auto", "avx512",
/// "avx2" or "portable"; the result names what is used and belongs in the job's fingerprint: bits
/// differ between instruction sets. kUnsupported if the machine lacks the one
/// asked for.
/// With bf16 the machine must also have AVX512-BF16.
[[nodiscard]] Result<std::string> select_isa(const std::string& isa, Dtype dtype = Dtype::kFp32);

/// Builds the engine of one compute thread: all primitives and one arena for everything a step
/// touches. Must be called, and the engine used, on the same thread (oneDNN's thread count is per
/// thread). `model` must outlive the engine, and so must `observer`, which is told about every
/// train().
[[nodiscard]] Result<std::unique_ptr<StepEngine>> make_cpu_engine(const Model& model,
                                                                  std::uint32_t microbatch,
                                                                  StepObserver* observer = nullptr,
                                                                  Dtype dtype = Dtype::kFp32);

/// Where that engine has its tensors. Builds, and drops, a whole engine; same errors.
[[nodiscard]] Result<MemoryPlan> memory_plan_of(const Model& model, std::uint32_t microbatch,
                                                Dtype dtype = Dtype::kFp32);

}  // namespace mayfly::nn::cpu
