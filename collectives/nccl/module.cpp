// libmayfly_nccl.so: the NCCL transport as a module that is loaded at run time.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "collectives/nccl/nccl_api_cuda.hpp"
#include "collectives/nccl/nccl_facts.hpp"
#include "collectives/nccl/nccl_transport.hpp"
#include "collectives/nccl/sum_calls_cuda.hpp"
#include "collectives/transport_module.hpp"

namespace mayfly::collectives {
namespace {

Result<void> probe() {
  return judge(read_nccl_facts(0));
}

// NCCL takes two members on one GPU for a mistake, unless it takes them for two machines.
void keep_apart_from_who_shares() {
  const std::string name = fmt::format("mayfly-{}", ::getpid());
  ::setenv("NCCL_HOSTID", name.c_str(), 0);
}

Result<std::unique_ptr<Transport>> make(const ModuleOptions& options) {
  TRY(judge(read_nccl_facts(options.device)));
  if (options.is_shared) {
    keep_apart_from_who_shares();
  }
  Result<std::unique_ptr<NcclApi>> api = make_cuda_nccl_api(options.device);
  if (!api.ok()) {
    return std::move(api).error();
  }
  Result<std::unique_ptr<DeviceTransport>> transport = make_nccl_transport(
      std::move(api).value(), fmt::format("nccl:{}:{}", options.bind_host, options.device));
  if (!transport.ok()) {
    return std::move(transport).error();
  }
  return std::unique_ptr<Transport>(std::move(transport).value());
}

}  // namespace
}  // namespace mayfly::collectives

extern "C" __attribute__((visibility("default"))) const mayfly::collectives::TransportModule*
mayfly_transport_module() {
  using namespace mayfly::collectives;  // NOLINT: the names above
  static const TransportModule module{.build = transport_module_build(),
                                      .probe = probe,
                                      .make = make,
                                      .make_sum_calls = make_cuda_sum_calls};
  return &module;
}
