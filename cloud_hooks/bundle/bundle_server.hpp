#pragma once

// Serves the start script and the worker bundle to a job's new servers, over HTTP, to clients that
// present bundle_access() of the job token. It runs on a thread of its own, so that neither a slow
// disk nor a slow client delays the coordinator. Each connection has a bounded buffer, a bounded
// time, and one request. The replies themselves are a pure function of the request. A server whose
// worker failed sends the end of the worker's output, which reaches the job's user only in this
// way.
//
// Nothing is encrypted: the files contain no secret, and clients check their hashes.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "cloud_hooks/bundle/program_bundle.hpp"

namespace mayfly::cloud_hooks {

/// The credential of clients: 64 hexadecimal digits, derived from the job token's text by SHA-256,
/// so that the token itself is not sent. With coreutils:
/// printf 'mayfly bundle\n%s\n' "$token" | sha256sum
[[nodiscard]] std::string bundle_access(const std::string& token);

/// The parts of a request that matter here.
struct BundleQuery {
  std::string method;
  std::string target;
  std::string authorization;  ///< its header's value; empty = none
  std::string range;          ///< the same
  std::string body = {};
};

/// Upper limit of the body of a request, which reports a failure.
inline constexpr std::size_t kFailureBytesMax = 4096;

/// The sizes of the available files in bytes.
struct BundleSizes {
  std::uint64_t start = 0;   ///< of /start, the start script
  std::uint64_t bundle = 0;  ///< of /bundle
};

struct BundleReply {
  enum class Body { kNone, kStart, kBundle };
  int status = 200;
  std::string head;         ///< status line and headers, with the empty line
  Body body = Body::kNone;  ///< whose bytes [first, first + bytes) follow
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;
  std::string failed_server = {};  ///< the request's body is the end of its worker's output
};

/// 403 for any request without `access`. Otherwise GET and HEAD of the available files, whole or
/// one range (RFC 9110; a request for several ranges is answered with the whole file), and POST of
/// /failed?SERVER with the end of the output of a worker that failed.
[[nodiscard]] BundleReply reply_to(const BundleQuery& query, const std::string& access,
                                   const BundleSizes& sizes);

/// 503, with the advice to try again in a second.
[[nodiscard]] BundleReply busy_reply();

/// Limits; tests use shorter times.
struct BundleLimits {
  std::size_t unauthenticated_max = 64;   ///< unauthenticated connections; the oldest is closed
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
  /// Receives a server's name and the end of its worker's output, on the thread of the bundle
  /// server.
  std::function<void(const std::string& server, const std::string& output)> on_failed = {};
};

class BundleServer {
 public:
  /// Starts the thread.
  [[nodiscard]] static std::unique_ptr<BundleServer> start(BundleServerOptions options);
  /// Ends all connections and the thread.
  virtual ~BundleServer() = default;
};

}  // namespace mayfly::cloud_hooks
