#include "engine/network/device.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "base/module_file.hpp"
#include "base/try_assign.hpp"
#include "datasets/core/augmentation.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/training/backend.hpp"
#include "nn/cpu/cpu_engine.hpp"

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

/// The training set, if a GPU may hold it and look up images itself: images must have the network's
/// size and be decoded in memory. The job outlives the engine.
std::optional<nn::cuda::TrainingSet> training_set_of(const Job& job) {
  const datasets::Dataset& train = *job.data.train;
  if (job.data.encoded || train.image_size() != job.model.image_size) {
    return {};
  }
  const auto side = static_cast<std::size_t>(train.image_size());
  return nn::cuda::TrainingSet{
      .resident = {.samples = train.size(),
                   .augmentation = datasets::augmentation_source(seed_of_samples(job.config)),
                   .augment = job.config.augment},
      .table = datasets::Normaliser(job.data.mean, job.data.deviation).table(),
      .image_bytes = 3 * side * side,
      .read = [&train](std::uint64_t sample, std::span<std::uint8_t> pixels) {
        return train.read(sample, pixels);
      }};
}

}  // namespace

Result<std::string> device_identity(const std::string& device, bool may_differ) {
  TRY_ASSIGN(const DeviceChoice choice, parse_device(device));
  if (!choice.is_cuda) {
    return device;
  }
  TRY_ASSIGN(const CudaModule* const module, load_cuda());
  const auto kinds = module->probe(choice.number.value_or(nn::cuda::kAnyDevice));
  if (!kinds.ok()) {
    return unusable(kinds.error());
  }
  if (kinds.value().size() > 1 && !may_differ) {
    return unusable(
        {Errc::kUnsupported,
         fmt::format("this machine has several kinds of GPU ({}), whose results differ; "
                     "name one: device cuda:N, or show those of one kind only in "
                     "CUDA_VISIBLE_DEVICES",
                     fmt::join(kinds.value(), "; "))});
  }
  return fmt::format("cuda, {}", fmt::join(kinds.value(), "; "));
}

bool takes_any_device(const Job& job) {
  return !job.exact() && job.config.audit_every == 0 && !uses_parameter_servers(job.config);
}

Result<std::unique_ptr<nn::DeviceEngine>> make_gpu_engine(const std::string& device,
                                                          const nn::Model& model,
                                                          nn::cuda::EngineRequest request) {
  TRY_ASSIGN(const DeviceChoice choice, parse_device(device));
  if (!choice.is_cuda) {
    return Error{Errc::kInvalidInput, "device " + device + " is not a GPU"};
  }
  TRY_ASSIGN(const CudaModule* const module, load_cuda());
  request.device = choice.number.value_or(request.device);
  Result<std::unique_ptr<nn::DeviceEngine>> engine = module->make(model, request);
  return engine.ok() ? std::move(engine) : unusable(engine.error());
}

Result<std::unique_ptr<nn::StepEngine>> make_step_engine(const Job& job,
                                                         nn::cpu::StepObserver* observer) {
  if (!uses_cuda(job.config.device)) {
    return nn::cpu::make_cpu_engine(job.model, job.config.microbatch,
                                    {.dtype = job.dtype, .observer = observer});
  }
  const bool sums = reduces_on_device(job.config);
  const std::optional<nn::cuda::TrainingSet> set = training_set_of(job);
  TRY_ASSIGN(std::unique_ptr<nn::StepEngine> engine,
             make_gpu_engine(
                 job.config.device, job.model,
                 {.microbatch = job.config.microbatch,
                  .dtype = job.dtype,
                  // Launched workers share an environment, so it must not choose the GPU.
                  .device = job.config.launched ? nn::cuda::kFreeDevice : nn::cuda::kAnyDevice,
                  .sums_bytes = sums ? device_sums_bytes(layout_of(job.model), job.exact()) : 0,
                  .keeps_state = sums,
                  .training_set = set.has_value() ? &*set : nullptr}));
  return engine;
}

}  // namespace mayfly::engine
