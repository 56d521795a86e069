#include "engine/cloud/gpu_findings.hpp"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>

#include "cloud_hooks/core/machine_gpu.hpp"
#include "cloud_hooks/program_bundle.hpp"
#include "engine/config/cloud_offers.hpp"

namespace mayfly::engine {
namespace {

using cloud_hooks::Finding;

Finding finding_about_bundle(const std::string& bundle) {
  const Result<bool> has_module = cloud_hooks::has_cuda_module(bundle);
  if (!has_module.ok()) {
    return {false, "bundle " + has_module.error().detail};
  }
  return has_module.value()
             ? Finding{true, "bundle " + bundle + " has the module for device cuda"}
             : Finding{false, "bundle " + bundle +
                                  " has no libmayfly_cuda.so; make it with `mayfly bundle` of a "
                                  "program that was built where CUDA and cuDNN are"};
}

}  // namespace

std::vector<Finding> examine_gpus(const JobConfig& config) {
  std::vector<Finding> findings;
  const auto offers = parse_offers(config.cloud_offers);
  if (!servers_use_cuda(config) || !offers.ok()) {
    return findings;
  }
  std::set<std::string> seen;
  for (const cloud_hooks::OfferTerms& terms : offers.value()) {
    const std::string& type = terms.offer.machine_type;
    if (!names_cloud_machines(config) || type.empty() || !seen.insert(type).second) {
      continue;
    }
    const std::optional<cloud_hooks::MachineGpu> gpu = cloud_hooks::gpu_of_machine(type);
    findings.push_back(
        {true, gpu ? fmt::format("{} has {}, compute capability {}.{}", type, gpu->name,
                                 gpu->capability / 10, gpu->capability % 10)
                   : fmt::format("the GPU of {} is not known here; its workers will say", type)});
  }
  if (!config.cloud_bundle.empty()) {
    findings.push_back(finding_about_bundle(config.cloud_bundle));
  }
  return findings;
}

}  // namespace mayfly::engine
