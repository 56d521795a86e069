#pragma once

// Serves the start script and the worker bundle to a job's new servers, over HTTP, to clients that
// present bundle_access() of the job token. It runs on a thread of its own, so that neither a slow
// disk nor a slow client delays the coordinator. Each connection has a bounded buffer, a bounded
// time, and one request.
//
// Nothing is encrypted: the files contain no secret, and clients check their hashes.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "cloud_hooks/bundle/bundle_file.hpp"

namespace mayfly::cloud_hooks {

/// Limits; tests use shorter times.
struct BundleLimits {
  std::size_t strangers_max = 64;         ///< unauthenticated connections; the oldest is closed
  std::size_t downloads_max = 64;         ///< simultaneous downloads; more clients receive 503
  Duration request_max = seconds(5);      ///< until the request is complete
  Duration stall_max = seconds(30);       ///< without progress while the answer is sent
  Duration download_max = seconds(1800);  ///< for the whole answer
};

struct BundleServerOptions {
  UniqueFd listener;       ///< a listening TCP socket, not blocking
  std::string access;      ///< bundle_access() of the job token
  std::string start_text;  ///< served as /start
  BundleFile bundle;       ///< served as /bundle
  BundleLimits limits;
};

class BundleServer {
 public:
  /// Starts the thread.
  [[nodiscard]] static std::unique_ptr<BundleServer> start(BundleServerOptions options);
  /// Ends all connections and the thread.
  virtual ~BundleServer() = default;
};

}  // namespace mayfly::cloud_hooks
