#pragma once

// What the bundle server answers: a request as a value in, a reply as a value out. No socket here.

#include <cstdint>
#include <string>

namespace mayfly::cloud_hooks {

/// What a client must show to fetch anything: 64 hexadecimal digits made of the job token's text by
/// SHA-256, so that the token itself stays where it is. With coreutils:
/// printf 'mayfly bundle\n%s\n' "$token" | sha256sum
[[nodiscard]] std::string bundle_access(const std::string& token);

/// The parts of a request that matter here.
struct BundleQuery {
  std::string method;
  std::string target;
  std::string authorization;  ///< its header's value; empty = none
  std::string range;          ///< the same
};

/// What there is to fetch: how many bytes.
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

/// 403 for whoever does not show `access`, whatever he asks for; then GET and HEAD of what there
/// is, whole or one range of it (RFC 9110; more than one range is answered with the whole).
[[nodiscard]] BundleReply reply_to(const BundleQuery& query, const std::string& access,
                                   const BundleSizes& sizes);

/// 503: come back in a second.
[[nodiscard]] BundleReply busy_reply();

}  // namespace mayfly::cloud_hooks
