#pragma once

// The step engines for the setting `device`. The CUDA engine is a module that is loaded when a job
// asks for it (nn/cuda/cuda_module.hpp). Any thread.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "engine/job/job.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/device_engine.hpp"

namespace mayfly::engine {

/// Describes the properties of the device on which bits depend, for the fingerprint and the log:
/// "cpu", or "cuda" with the GPU's name, its architecture and the version of cuDNN. For cuda this
/// loads the module and checks this machine: kUnsupported, in one line, if this build has no such
/// module, if something is missing, or if the machine has several kinds of GPU that may be chosen;
/// with `may_differ` all kinds are listed instead. kInvalidInput for an unknown device.
[[nodiscard]] Result<std::string> device_identity(const std::string& device,
                                                  bool may_differ = false);

/// Whether workers of the job may use devices or kernels that compute different bits. They may if
/// sums are rounded anyway, if the results of two workers are not compared (audits), and if the job
/// does not guarantee bits (parameter servers). Pure.
[[nodiscard]] bool takes_any_device(const Job& job);

/// The engine of a GPU ("cuda", "cuda:N"), to be made and used on one thread; `model` outlives it.
/// The number in the name replaces that of the request. Errors as nn::cuda::CudaModule::make;
/// kInvalidInput for any other device.
[[nodiscard]] Result<std::unique_ptr<nn::DeviceEngine>> make_gpu_engine(
    const std::string& device, const nn::Model& model, nn::cuda::EngineRequest request);

/// The engine of one compute thread, to be made and used on it. `observer` may be null; a GPU does
/// not call it. Errors as nn::cpu::make_cpu_engine, or nn::cuda::CudaModule::make.
[[nodiscard]] Result<std::unique_ptr<nn::StepEngine>> make_step_engine(
    const Job& job, nn::cpu::StepObserver* observer);

}  // namespace mayfly::engine
