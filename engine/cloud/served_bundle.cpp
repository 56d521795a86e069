#include "engine/cloud/served_bundle.hpp"

#include <utility>

#include "base/file.hpp"
#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/http/message.hpp"
#include "engine/cloud/cloud_startup.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::engine {
namespace {

std::string bundle_address_path(const std::string& run_dir) {
  return run_dir + "/bundle";
}

/// A listening socket, on the port from before a restart if that is free.
Result<UniqueFd> listen_for_servers(const JobConfig& config, std::uint16_t port_before) {
  TRY_ASSIGN(const std::string host, coordinator_host(config));
  if (config.cloud_bundle_port == 0 && port_before != 0) {
    Result<UniqueFd> again = listen_tcp(Endpoint{host, port_before});
    if (again.ok()) {
      return again;
    }
  }
  return listen_tcp(Endpoint{host, config.cloud_bundle_port});
}

}  // namespace

Result<ServedBundle> serve_bundle(
    const JobConfig& config, const std::string& coordinators, const std::string& host,
    std::function<void(const std::string& server, const std::string& output)> on_failed) {
  TRY_ASSIGN(const std::string token, token_text(config));
  Result<cloud_hooks::BundleFile> bundle = cloud_hooks::open_bundle(config.cloud_bundle);
  if (!bundle.ok()) {
    return Error{Errc::kInvalidInput, "cloud_bundle: " + bundle.error().detail};
  }
  TRY_ASSIGN(std::string start, served_start(config, coordinators, bundle.value().sha256));
  const std::string path = bundle_address_path(config.run_dir);
  TRY_ASSIGN(UniqueFd listener, listen_for_servers(config, port_in(path)));
  const std::string address = to_string(Endpoint{host, bound_endpoint(listener.get()).port});
  // A server that was requested before a restart still connects to the old address.
  TRY(write_file_atomic(path, address + "\n"));
  const std::string hash = cloud_hooks::to_hex(cloud_hooks::sha256(start));
  ServedBundle served;
  served.startup_text = fetching_text(config, address, token, hash);
  served.server = cloud_hooks::BundleServer::start({std::move(listener),
                                                    cloud_hooks::bundle_access(token),
                                                    std::move(start),
                                                    std::move(bundle).value(),
                                                    {},
                                                    std::move(on_failed)});
  return served;
}

}  // namespace mayfly::engine
