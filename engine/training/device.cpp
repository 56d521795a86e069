#include "engine/training/device.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/beside_program.hpp"
#include "base/file.hpp"
#include "base/module_file.hpp"
#include "datasets/core/augmentation.hpp"
#include "engine/config/device_choice.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/training/device_exchange.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::engine {
namespace {

using nn::cuda::CudaModule;
using nn::cuda::DeviceIdentity;
using nn::cuda::EngineTable;

constexpr std::size_t kEngineTableBytesMax = std::size_t{16} << 20;

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

Result<DeviceChoice> gpu_choice(const std::string& device) {
  Result<DeviceChoice> choice = parse_device(device);
  return !choice.ok() || choice.value().is_cuda
             ? std::move(choice)
             : Error{Errc::kInvalidInput, "device " + device + " is no GPU"};
}

Result<DeviceIdentity> probed(const DeviceChoice& choice) {
  const Result<const CudaModule*> module = load_cuda();
  if (!module.ok()) {
    return module.error();
  }
  Result<DeviceIdentity> identity = module.value()->probe(number_of(choice));
  return identity.ok() ? std::move(identity) : unusable(identity.error());
}

/// What a GPU may look up itself: images that have the network's size and lie decoded in memory.
/// The job outlives the engine.
std::optional<nn::cuda::TrainingSet> training_set_of(const Job& job) {
  const datasets::Dataset& train = *job.data.train;
  if (job.data.encoded || train.image_size() != job.model.image_size) {
    return {};
  }
  const auto side = static_cast<std::size_t>(train.image_size());
  return nn::cuda::TrainingSet{
      .resident = {.samples = train.size(),
                   .augmentation = datasets::augmentation_source(job.config.seed),
                   .augment = job.config.augment},
      .table = datasets::Normaliser(job.data.mean, job.data.deviation).table(),
      .image_bytes = 3 * side * side,
      .read = [&train](std::uint64_t sample, std::span<std::uint8_t> pixels) {
        return train.read(sample, pixels);
      }};
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
  const Result<DeviceIdentity> identity = probed(choice.value());
  return identity.ok() ? Result<std::string>("cuda, " + identity.value().text) : identity.error();
}

Result<EngineTable> read_engine_table(const std::string& path, const std::string& kind) {
  if (path.empty()) {
    return EngineTable(kind);
  }
  const Result<std::string> text = read_text_file(path, kEngineTableBytesMax);
  if (!text.ok()) {
    return text.error().code == Errc::kNotFound ? Result<EngineTable>(EngineTable(kind))
                                                : text.error();
  }
  Result<EngineTable> table = EngineTable::parse(text.value());
  if (!table.ok()) {
    return Error{table.error().code, path + ": " + table.error().detail};
  }
  if (table.value().kind() != kind) {
    return Error{Errc::kInvalidInput, fmt::format("{} is the engine table of {}, this GPU's is {}",
                                                  path, table.value().kind(), kind)};
  }
  return table;
}

Result<EngineTable> engine_table_of(const std::string& device) {
  const Result<DeviceChoice> choice = gpu_choice(device);
  if (!choice.ok()) {
    return choice.error();
  }
  const Result<DeviceIdentity> identity = probed(choice.value());
  if (!identity.ok()) {
    return identity.error();
  }
  const std::string& kind = identity.value().kind;
  return read_engine_table(find_beside_program("engine_tables/" + kind + ".tsv"), kind);
}

Result<void> time_gpu_engines(const std::string& device,
                              const std::set<nn::cuda::ConvKey>& convolutions,
                              nn::cuda::EngineTimingRequest request,
                              const nn::cuda::EngineTimingSink& take) {
  const Result<DeviceChoice> choice = gpu_choice(device);
  if (!choice.ok()) {
    return choice.error();
  }
  const Result<const CudaModule*> module = load_cuda();
  if (!module.ok()) {
    return module.error();
  }
  request.device = number_of(choice.value());
  Result<void> timed = module.value()->time_engines(convolutions, request, take);
  return timed.ok() ? std::move(timed) : unusable(timed.error());
}

bool takes_any_device(const Job& job) {
  return !job.exact() && job.config.audit_every == 0 && !uses_parameter_servers(job.config);
}

Result<std::unique_ptr<nn::StepEngine>> make_gpu_engine(const std::string& device,
                                                        const nn::Model& model,
                                                        nn::cuda::EngineRequest request) {
  const Result<DeviceChoice> choice = gpu_choice(device);
  if (!choice.ok()) {
    return choice.error();
  }
  const Result<const CudaModule*> module = load_cuda();
  if (!module.ok()) {
    return module.error();
  }
  const Result<EngineTable> engines = engine_table_of(device);
  if (!engines.ok()) {
    return engines.error();
  }
  request.device = number_of(choice.value());
  request.engines = &engines.value();
  Result<std::unique_ptr<nn::StepEngine>> engine = module.value()->make(model, request);
  if (!engine.ok()) {
    return unusable(engine.error());
  }
  return engine;
}

Result<std::unique_ptr<nn::StepEngine>> make_step_engine(const Job& job,
                                                         nn::cpu::StepObserver* observer) {
  if (uses_cuda(job.config.device)) {
    const bool sums = reduces_on_device(job.config);
    const std::optional<nn::cuda::TrainingSet> set = training_set_of(job);
    return make_gpu_engine(
        job.config.device, job.model,
        {.microbatch = job.config.microbatch,
         .dtype = job.dtype,
         .sums_bytes = sums ? device_sums_bytes(ReductionLayout(job.model), job.exact()) : 0,
         .keeps_state = sums,
         .training_set = set.has_value() ? &*set : nullptr});
  }
  return nn::cpu::make_cpu_engine(job.model, job.config.microbatch,
                                  {.dtype = job.dtype, .observer = observer});
}

}  // namespace mayfly::engine
