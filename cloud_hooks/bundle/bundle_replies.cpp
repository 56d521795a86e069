#include "cloud_hooks/bundle/bundle_replies.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "cloud_hooks/sign/hashes.hpp"

namespace mayfly::cloud_hooks {
namespace {

struct Part {
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;  // 0: the range has no bytes of the file
};

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 206: return "Partial Content";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 416: return "Range Not Satisfiable";
    default: return "Service Unavailable";
  }
}

/// A reply without a body of its own; `more`: further header lines, each with its end.
BundleReply bare(int status, const std::string& more = {}) {
  BundleReply reply;
  reply.status = status;
  reply.head = fmt::format("HTTP/1.1 {} {}\r\n{}Content-Length: 0\r\nConnection: close\r\n\r\n",
                           status, reason_of(status), more);
  return reply;
}

bool shows_access(std::string_view authorization, const std::string& access) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) {
    return false;
  }
  authorization.remove_prefix(kScheme.size());
  return authorization.size() == access.size() &&
         CRYPTO_memcmp(authorization.data(), access.data(), access.size()) == 0;
}

/// The whole of `text` as a number.
std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = failure == std::errc{} && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

/// The range of `size` bytes that a Range header selects; none if the header is to be ignored.
std::optional<Part> part_of(std::string_view range, std::uint64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  const std::size_t dash = range.find('-');
  if (!range.starts_with(kUnit) || dash == std::string_view::npos || dash < kUnit.size()) {
    return std::nullopt;
  }
  const std::string_view from = range.substr(kUnit.size(), dash - kUnit.size());
  const std::string_view to = range.substr(dash + 1);
  const std::optional<std::uint64_t> last = number_in(to);
  if (!last && !to.empty()) {
    return std::nullopt;
  }
  if (from.empty()) {  // the last so many bytes
    if (!last) {
      return std::nullopt;
    }
    const std::uint64_t bytes = std::min(*last, size);
    return Part{size - bytes, bytes};
  }
  const std::optional<std::uint64_t> first = number_in(from);
  if (!first || (last && *last < *first)) {
    return std::nullopt;
  }
  if (*first >= size) {
    return Part{};
  }
  return Part{*first, std::min(last.value_or(size - 1), size - 1) - *first + 1};
}

}  // namespace

std::string bundle_access(const std::string& token) {
  return to_hex(sha256("mayfly bundle\n" + token + "\n"));
}

BundleReply reply_to(const BundleQuery& query, const std::string& access,
                     const BundleSizes& sizes) {
  if (!shows_access(query.authorization, access)) {
    return bare(403);
  }
  const bool is_start = query.target == "/start";
  if (!is_start && query.target != "/bundle") {
    return bare(404);
  }
  if (query.method != "GET" && query.method != "HEAD") {
    return bare(405, "Allow: GET, HEAD\r\n");
  }
  const std::uint64_t size = is_start ? sizes.start : sizes.bundle;
  const std::optional<Part> part =
      query.method == "GET" ? part_of(query.range, size) : std::nullopt;
  if (part && part->bytes == 0) {
    return bare(416, fmt::format("Content-Range: bytes */{}\r\n", size));
  }
  BundleReply reply;
  reply.status = part ? 206 : 200;
  reply.body = is_start ? BundleReply::Body::kStart : BundleReply::Body::kBundle;
  reply.first = part ? part->first : 0;
  reply.bytes = part ? part->bytes : size;
  const std::string place = part ? fmt::format("Content-Range: bytes {}-{}/{}\r\n", reply.first,
                                               reply.first + reply.bytes - 1, size)
                                 : std::string();
  reply.head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n"
      "{}Content-Length: {}\r\nConnection: close\r\n\r\n",
      reply.status, reason_of(reply.status), place, reply.bytes);
  if (query.method == "HEAD") {
    reply.body = BundleReply::Body::kNone;
    reply.bytes = 0;
  }
  return reply;
}

BundleReply busy_reply() {
  return bare(503, "Retry-After: 1\r\n");
}

}  // namespace mayfly::cloud_hooks
