// libmayfly_cuda.so: the CUDA engine as a module that is loaded at run time.

#include <cudnn_graph.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/module_file.hpp"
#include "base/try_assign.hpp"
#include "nn/cuda/cuda_engine.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/cuda/device_choice.hpp"

namespace mayfly::nn::cuda {
namespace {

/// What driver and library report about `device`. Cheap; makes no context on a device.
CudnnFacts read_cudnn_facts(int device) {
  return {.gpu = read_gpu_facts(device == kAnyDevice ? 0 : device),
          .found_cudnn = cudnnGetVersion()};
}

Result<std::string> probe(int device) {
  const CudnnFacts facts = read_cudnn_facts(device);
  TRY(judge(facts));
  return identity_of(facts);
}

std::string claims_folder() {
  std::error_code no_such_folder;
  const std::string folder = std::filesystem::temp_directory_path(no_such_folder).string();
  return folder.empty() ? "/tmp" : folder;
}

Result<ChosenDevice> first_free(int devices) {
  const std::string folder = claims_folder();
  for (int device = 0; device < devices; ++device) {
    const CudnnFacts facts = read_cudnn_facts(device);
    if (!judge(facts).ok()) {
      continue;
    }
    Result<DeviceClaim> claim = DeviceClaim::take(folder, facts.gpu.bus);
    if (claim.ok()) {
      return ChosenDevice{device, std::move(claim).value()};
    }
    if (claim.error().code != Errc::kRefused) {
      return std::move(claim).error();
    }
  }
  return Error{Errc::kRefused,
               fmt::format("other workers use all {} GPUs of this machine; start fewer, or name "
                           "one to share: device cuda:N",
                           devices)};
}

/// A GPU that the user or the launcher chose may have several workers.
ChosenDevice named(int device) {
  Result<DeviceClaim> claim = DeviceClaim::take(claims_folder(), read_cudnn_facts(device).gpu.bus);
  if (claim.ok()) {
    return {device, std::move(claim).value()};
  }
  return {device, {}, claim.error().code == Errc::kRefused};
}

Result<ChosenDevice> choose(int device) {
  const CudnnFacts facts = read_cudnn_facts(device);
  TRY(judge(facts));
  if (device != kAnyDevice) {
    return named(device);
  }
  if (const int number = local_number(); number >= 0) {
    return named(number % facts.gpu.devices);
  }
  return first_free(facts.gpu.devices);
}

Result<std::unique_ptr<DeviceEngine>> make(const Model& model, const EngineRequest& request) {
  TRY_ASSIGN(ChosenDevice device, choose(request.device));
  return make_cuda_engine(model, request, std::move(device));
}

}  // namespace
}  // namespace mayfly::nn::cuda

extern "C" __attribute__((visibility("default"))) const mayfly::nn::cuda::CudaModule*
mayfly_cuda_module() {
  using namespace mayfly::nn::cuda;  // NOLINT: the names above
  static const CudaModule module{.build = mayfly::module_build(), .probe = probe, .make = make};
  return &module;
}
