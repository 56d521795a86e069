// libmayfly_cuda.so: the CUDA engine as a module that is loaded at run time.

#include <cudnn_graph.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/module_file.hpp"
#include "base/try_assign.hpp"
#include "nn/cuda/cuda_engine.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/cuda/device_choice.hpp"

namespace mayfly::nn::cuda {
namespace {

/// The facts that driver and library report about `device`. Cheap; makes no context on a device.
CudnnFacts read_cudnn_facts(int device) {
  return {.gpu = read_gpu_facts(device), .found_cudnn = cudnnGetVersion()};
}

/// The facts of all visible GPUs, or those read for the first if there is none.
std::vector<CudnnFacts> read_all_facts() {
  std::vector<CudnnFacts> all{read_cudnn_facts(0)};
  for (int device = 1; device < all.front().gpu.devices; ++device) {
    all.push_back(read_cudnn_facts(device));
  }
  return all;
}

Result<std::vector<std::string>> probe(int device) {
  return kinds_of(device >= 0 ? std::vector{read_cudnn_facts(device)} : read_all_facts());
}

/// A folder that is the same for all workers of this machine, whose TMPDIR may differ. A container
/// may have a TMPDIR because its /tmp cannot be written to.
std::string claims_folder() {
  constexpr const char* kOfEverybody = "/tmp";
  std::error_code no_such_folder;
  if (::access(kOfEverybody, W_OK | X_OK) == 0) {
    return kOfEverybody;
  }
  const std::string folder = std::filesystem::temp_directory_path(no_such_folder).string();
  return folder.empty() ? kOfEverybody : folder;
}

/// A GPU that the user or the launcher chose may have several workers.
Result<ChosenDevice> named(const CudnnFacts& facts) {
  TRY(judge(facts));
  Result<DeviceClaim> claim = DeviceClaim::take(claims_folder(), facts.gpu.uuid);
  if (claim.ok()) {
    return ChosenDevice{facts.gpu.device, std::move(claim).value()};
  }
  return ChosenDevice{facts.gpu.device, {}, claim.error().code == Errc::kRefused};
}

Result<ChosenDevice> choose(int device) {
  if (device >= 0) {
    return named(read_cudnn_facts(device));
  }
  const std::vector<CudnnFacts> gpus = read_all_facts();
  const auto from_environment = [](const char* name) -> const char* { return std::getenv(name); };
  const int number = device == kAnyDevice ? local_number(from_environment) : -1;
  if (number >= 0) {
    return named(gpus[static_cast<std::size_t>(number) % gpus.size()]);
  }
  TRY(kinds_of(gpus));
  return claim_free(claims_folder(), gpus);
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
