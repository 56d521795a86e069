#pragma once

// Serves a job's new servers what they start with: the start script and the worker bundle, over
// HTTP, to whoever can show bundle_access() of the job token. On one thread of its own, so that
// neither a slow disk nor a slow reader keeps the coordinator waiting. Each connection has a
// bounded buffer, a bounded time, and one request.
//
// Nothing is encrypted: what is served holds no secret, and who fetches it checks its hash.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "cloud_hooks/bundle/bundle_file.hpp"

namespace mayfly::cloud_hooks {

/// How long and how many; tests are less patient.
struct BundleLimits {
  std::size_t strangers_max = 64;         ///< other connections; more: the oldest goes
  std::size_t downloads_max = 64;         ///< of the bundle at once; more are told to come back
  Duration request_max = seconds(5);      ///< for a request to come
  Duration stall_max = seconds(30);       ///< for a block of the answer to be taken
  Duration download_max = seconds(1800);  ///< for all of it
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
  /// Starts at once.
  [[nodiscard]] static std::unique_ptr<BundleServer> start(BundleServerOptions options);
  /// Ends all connections and the thread.
  virtual ~BundleServer() = default;
};

}  // namespace mayfly::cloud_hooks
