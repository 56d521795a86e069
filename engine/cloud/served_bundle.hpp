#pragma once

// The bundle of a job, which new servers download from the coordinator (docs/cloud.md).

#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "cloud_hooks/bundle/bundle_server.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

struct ServedBundle {
  std::string startup_text;  ///< of a request: the script that downloads the bundle
  std::unique_ptr<cloud_hooks::BundleServer> server;
};

/// Serves cloud_bundle under the address `host`, on the port of an earlier process of this job if
/// that is free, because servers that it requested still connect to it. `on_failed`: as in
/// BundleServerOptions. kInvalidInput if the bundle or the start script is not valid, kIo without a
/// port.
[[nodiscard]] Result<ServedBundle> serve_bundle(
    const JobConfig& config, const std::string& coordinators, const std::string& host,
    std::function<void(const std::string& server, const std::string& output)> on_failed);

}  // namespace mayfly::engine
