#include "engine/training/backend.hpp"

#include <cstdlib>

#include "base/check.hpp"
#include "collectives/gloo/gloo_transport.hpp"
#include "collectives/tcp/tcp_transport.hpp"
#include "collectives/transport_module.hpp"
#include "engine/run/network_interface.hpp"

namespace mayfly::engine {
namespace {

// The backends that are modules.
bool is_module(const std::string& backend) {
  return backend == "mpi" || backend == "nccl";
}

}  // namespace

Result<void> check_backend(const JobConfig& config) {
  if (!is_module(config.backend)) {
    return {};
  }
  const Result<const collectives::TransportModule*> module =
      collectives::load_transport_module(config.backend);
  return module.ok() ? module.value()->probe() : Result<void>(module.error());
}

Result<std::unique_ptr<collectives::Transport>> make_transport(const JobConfig& config,
                                                               collectives::DelaySource delay) {
  const Result<std::string> host = listening_host(config.bind_host);
  if (!host.ok()) {
    return host.error();
  }
  ENSURE(config.backend != "nccl", "its transport needs a device, see device_exchange");
  if (is_module(config.backend)) {
    const Result<const collectives::TransportModule*> module =
        collectives::load_transport_module(config.backend);
    if (!module.ok()) {
      return module.error();
    }
    collectives::ModuleOptions options;
    options.bind_host = host.value();
    options.share_cores = true;
    return module.value()->make(options);
  }
  if (config.backend == "gloo") {
    collectives::GlooOptions options;
    options.bind_host = host.value();
    return collectives::make_gloo_transport(options);
  }
  collectives::TcpOptions options;
  options.bind_host = host.value();
  options.delay = std::move(delay);
  return collectives::make_tcp_transport(options);
}

std::string process_set(const JobConfig& config) {
  const char* job = config.backend == "mpi" ? std::getenv("PMIX_NAMESPACE") : nullptr;
  return job == nullptr ? "any" : std::string("mpirun ") + job;
}

}  // namespace mayfly::engine
