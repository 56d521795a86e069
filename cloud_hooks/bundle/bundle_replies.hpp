#pragma once

// The replies of the bundle server, as a pure function from a request to a reply. No sockets.

#include <cstdint>
#include <string>

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
};

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
};

/// 403 for any request without `access`. Otherwise GET and HEAD of the available files, whole or
/// one range (RFC 9110; a request for several ranges is answered with the whole file).
[[nodiscard]] BundleReply reply_to(const BundleQuery& query, const std::string& access,
                                   const BundleSizes& sizes);

/// 503, with the advice to try again in a second.
[[nodiscard]] BundleReply busy_reply();

}  // namespace mayfly::cloud_hooks
