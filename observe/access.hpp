#pragma once

// Access to the page: the viewing key, and the checks that every request has to pass before it is
// answered. Pure, except for the random key. Any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mayfly::observe {

/// The key of a job's viewers, 64 hexadecimal digits: derived from the text of the job's token by
/// SHA-256, so that a viewer of a job cannot join it. With coreutils:
/// printf 'mayfly dashboard\n%s\n' "$token" | sha256sum
[[nodiscard]] std::string viewing_key(std::string_view token);
/// A random key of the same form.
[[nodiscard]] std::string random_key();

/// The parts of a request that matter here; a header that it lacks is empty.
struct Query {
  std::string method;
  std::string target;
  std::string host;
  std::string origin;
  std::string authorization;
  std::string cookie;
  std::string last_event_id;
  std::string accept;
};

/// The key and the names that are accepted at one port.
struct Gate {
  std::string key;
  std::uint16_t port = 0;
  std::vector<std::string> names;  ///< besides localhost and addresses of this host

  /// The name of the cookie contains the port, because browsers share cookies between the ports of
  /// a host.
  [[nodiscard]] std::string cookie_name() const;
};

/// 0 if the request may be answered. Otherwise the status of the refusal: 421 if its Host is not a
/// name or address of this server (DNS rebinding: the name of a foreign page was made to resolve to
/// this host), 405 for methods that could change something, 403 for a foreign Origin or without the
/// key. `address` is the numeric address at which the connection was accepted.
[[nodiscard]] int refusal(const Gate& gate, const Query& query, const std::string& address);

/// The value of a parameter in the target's query, or an empty text.
[[nodiscard]] std::string parameter(std::string_view target, std::string_view name);
/// The target without its query.
[[nodiscard]] std::string_view path_of(std::string_view target);

}  // namespace mayfly::observe
