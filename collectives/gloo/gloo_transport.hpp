#pragma once

// Groups over the Gloo library as transport, with our own ring on top: Gloo's stock all-reduce
// cannot be stopped reliably from another thread.

#include <memory>
#include <string>

#include "collectives/group.hpp"

namespace mayfly::collectives {

struct GlooOptions {
  std::string bind_host = "127.0.0.1";  ///< name or address of the interface to use
};

/// kUnsupported if this build has no Gloo. GroupSpec::store is needed by form(). Gloo writes to
/// sockets without MSG_NOSIGNAL, so this makes the process ignore SIGPIPE. All transports with the
/// same bind_host share one Gloo device (and its thread), which lives as long as the process.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_gloo_transport(const GlooOptions& options);

}  // namespace mayfly::collectives
