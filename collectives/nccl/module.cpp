// libmayfly_nccl.so: the NCCL transport as a module that is loaded at run time.

#include <fmt/format.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/net/addresses.hpp"
#include "base/system_random.hpp"
#include "base/try_assign.hpp"
#include "collectives/nccl/nccl_api.hpp"
#include "collectives/nccl/nccl_transport.hpp"
#include "collectives/transport_module.hpp"

namespace mayfly::collectives {
namespace {

/// The facts that driver and library report about `device`. Cheap; creates no context on a device.
NcclFacts read_nccl_facts(int device) {
  NcclFacts facts{.gpu = read_gpu_facts(device), .built_nccl = NCCL_VERSION_CODE};
  (void)ncclGetVersion(&facts.found_nccl);
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  facts.blocking_forced = blocking != nullptr && std::strcmp(blocking, "1") == 0;
  return facts;
}

Result<void> probe() {
  return judge(read_nccl_facts(0));
}

/// NCCL rejects two members on one GPU unless they seem to be on two machines.
void take_own_host_id() {
  const std::string name = fmt::format("mayfly-{:016x}", system_random());
  ::setenv("NCCL_HOSTID", name.c_str(), 0);
}

/// On a machine with several networks NCCL may choose one that other members cannot reach.
void use_interface_of(const std::string& bind_host) {
  const std::string name = interface_of(bind_host);
  if (!name.empty() && name != "lo") {
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + name).c_str(), 0);
  }
}

Result<std::unique_ptr<Transport>> make(const ModuleOptions& options) {
  TRY(judge(read_nccl_facts(options.device)));
  if (options.is_shared) {
    take_own_host_id();
  }
  use_interface_of(options.bind_host);  // before NCCL reads the variable, which it does once
  TRY_ASSIGN(std::unique_ptr<NcclApi> api, make_cuda_nccl_api(options.device));
  return make_nccl_transport(std::move(api),
                             fmt::format("nccl:{}:{}", options.bind_host, options.device));
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
