#pragma once

// What computes: step engines for the setting `device`. The CUDA engine is a module that is loaded
// when it is asked for (nn/cuda/cuda_module.hpp). Any thread.

#include <memory>
#include <set>
#include <string>

#include "base/result.hpp"
#include "engine/job/job.hpp"
#include "nn/cpu/step_observer.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::engine {

/// What the bits depend on, for the fingerprint and for people: "cpu", or "cuda" with the GPU's
/// name, its architecture and the version of cuDNN. For cuda this loads the module and asks it
/// whether this machine can: kUnsupported, in one line, if this build has no such module or
/// something is missing. kInvalidInput for an unknown device.
[[nodiscard]] Result<std::string> device_identity(const std::string& device);

/// The engine table in a file, for GPUs of this kind; empty if there is no such file. kCorrupt,
/// kInvalidInput or kIo, in one line, for a file that is no table, or one of another kind.
[[nodiscard]] Result<nn::cuda::EngineTable> read_engine_table(const std::string& path,
                                                              const std::string& kind);

/// Which of cuDNN's engines the GPU of this name computes convolutions with: the table of its kind
/// in the folder engine_tables beside the program. Errors as read_engine_table() and
/// device_identity().
[[nodiscard]] Result<nn::cuda::EngineTable> engine_table_of(const std::string& device);

/// Times cuDNN's engines on that GPU, to make its table. Errors as nn::cuda::CudaModule::make.
[[nodiscard]] Result<void> time_gpu_engines(const std::string& device,
                                            const std::set<nn::cuda::ConvKey>& convolutions,
                                            nn::cuda::EngineTimingRequest request,
                                            const nn::cuda::EngineTimingSink& take);

/// Whether the workers of a job may compute on devices, or with kernels, that give other bits:
/// where sums are rounded anyway, and nobody compares what two workers computed (audits) or
/// promises bits (parameter servers). Pure.
[[nodiscard]] bool takes_any_device(const Job& job);

/// The engine of a GPU ("cuda", "cuda:N"), to be made and used on one thread; `model` outlives it.
/// The request's device is that of the name, its engines those of engine_table_of(). Errors as
/// nn::cuda::CudaModule::make; kInvalidInput for any other device.
[[nodiscard]] Result<std::unique_ptr<nn::StepEngine>> make_gpu_engine(
    const std::string& device, const nn::Model& model, nn::cuda::EngineRequest request);

/// The engine of one compute thread, to be made and used on it. `observer` may be null; a GPU tells
/// it nothing. Errors as nn::cpu::make_cpu_engine, or nn::cuda::CudaModule::make.
[[nodiscard]] Result<std::unique_ptr<nn::StepEngine>> make_step_engine(
    const Job& job, nn::cpu::StepObserver* observer);

}  // namespace mayfly::engine
