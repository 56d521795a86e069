#include "engine/training/device.hpp"

#include "base/module_file.hpp"
#include "engine/config/device_choice.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/cuda/cuda_module.hpp"

namespace mayfly::engine {
namespace {

using nn::cuda::CudaModule;

Error unusable(const Error& error) {
  return {error.code, "device cuda cannot be used: " + error.detail};
}

Result<const CudaModule*> load_cuda() {
  const Result<void*> function = load_module("cuda", nn::cuda::kCudaModuleSymbol);
  if (!function.ok()) {
    return unusable(function.error());
  }
  const CudaModule* module = reinterpret_cast<nn::cuda::CudaModuleFunction>(function.value())();
  if (Result<void> same = check_module_build("cuda", module->build); !same.ok()) {
    return unusable(same.error());
  }
  return module;
}

int number_of(const DeviceChoice& choice) {
  return choice.number.value_or(nn::cuda::kAnyDevice);
}

}  // namespace

Result<std::string> device_identity(const std::string& device) {
  const Result<DeviceChoice> choice = parse_device(device);
  if (!choice.ok()) {
    return choice.error();
  }
  if (!choice.value().is_cuda) {
    return device;
  }
  const Result<const CudaModule*> module = load_cuda();
  if (!module.ok()) {
    return module.error();
  }
  const Result<std::string> identity = module.value()->probe(number_of(choice.value()));
  if (!identity.ok()) {
    return unusable(identity.error());
  }
  return "cuda, " + identity.value();
}

Result<std::unique_ptr<nn::StepEngine>> make_step_engine(const Job& job,
                                                         nn::cpu::StepObserver* observer) {
  const Result<DeviceChoice> choice = parse_device(job.config.device);
  if (!choice.ok()) {
    return choice.error();
  }
  if (!choice.value().is_cuda) {
    return nn::cpu::make_cpu_engine(job.model, job.config.microbatch,
                                    {.dtype = job.dtype, .observer = observer});
  }
  const Result<const CudaModule*> module = load_cuda();
  if (!module.ok()) {
    return module.error();
  }
  Result<std::unique_ptr<nn::StepEngine>> engine =
      module.value()->make(job.model, job.config.microbatch, job.dtype, number_of(choice.value()));
  if (!engine.ok()) {
    return unusable(engine.error());
  }
  return engine;
}

}  // namespace mayfly::engine
