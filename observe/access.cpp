#include "observe/access.hpp"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "base/net/addresses.hpp"

namespace mayfly::observe {
namespace {

/// Takes the same time wherever the texts differ, so that it does not reveal the key by parts.
bool are_equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string cookie_value(std::string_view header, const std::string& name) {
  for (std::size_t begin = 0; begin < header.size();) {
    const std::size_t end = std::min(header.find(';', begin), header.size());
    std::string_view one = header.substr(begin, end - begin);
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    if (one.starts_with(name + "=")) {
      return std::string(one.substr(name.size() + 1));
    }
    begin = end + 1;
  }
  return {};
}

bool knows_key(const Gate& gate, const Query& query) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view header = query.authorization;
  return are_equal(cookie_value(query.cookie, gate.cookie_name()), gate.key) ||
         (header.starts_with(kBearer) && are_equal(header.substr(kBearer.size()), gate.key));
}

/// Upper and lower case do not differ in names, and a socket of both families reports an IPv4
/// address in the form of IPv6.
std::string plain_name(std::string name) {
  constexpr std::string_view kMapped = "::ffff:";
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_mapped = name.starts_with(kMapped) && name.find('.') != std::string::npos;
  return is_mapped ? name.substr(kMapped.size()) : name;
}

bool is_our_host(const Gate& gate, const std::string& host, const std::string& address) {
  const bool has_port = !host.ends_with(']') && host.find(':') != std::string::npos;
  const Result<Endpoint> endpoint = parse_endpoint(has_port ? host : host + ":80");
  if (!endpoint.ok() || endpoint.value().port != gate.port) {
    return false;
  }
  const std::string name = plain_name(endpoint.value().host);
  return name == "localhost" || is_loopback(name) || name == plain_name(address) ||
         std::ranges::find(gate.names, name, plain_name) != gate.names.end();
}

}  // namespace

std::string viewing_key(std::string_view token) {
  const std::string text = "mayfly dashboard\n" + std::string(token) + "\n";
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return to_hex(std::as_bytes(std::span(digest)));
}

std::string random_key() {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> bytes{};
  ENSURE(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1,
         "the system provides random bytes");
  return to_hex(std::as_bytes(std::span(bytes)));
}

std::string Gate::cookie_name() const {
  return "mayfly-" + std::to_string(port);
}

int refusal(const Gate& gate, const Query& query, const std::string& address) {
  if (!is_our_host(gate, query.host, address)) {
    return 421;
  }
  const std::string_view path = path_of(query.target);
  const bool reads = query.method == "GET" || query.method == "HEAD";
  const bool posts = query.method == "POST" && path == "/session";
  if (!reads && !posts) {
    return 405;
  }
  const bool is_foreign = !query.origin.empty() && query.origin != "http://" + query.host;
  if (is_foreign || (posts && query.origin.empty())) {
    return 403;
  }
  const bool is_page = reads && path == "/";  // it contains no numbers of a run
  return is_page || knows_key(gate, query) ? 0 : 403;
}

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

std::string parameter(std::string_view target, std::string_view name) {
  const std::size_t question = target.find('?');
  std::string_view rest = question == std::string_view::npos ? "" : target.substr(question + 1);
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find('&'));
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=') {
      return std::string(one.substr(name.size() + 1));
    }
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
  return {};
}

}  // namespace mayfly::observe
