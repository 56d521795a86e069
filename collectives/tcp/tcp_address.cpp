#include "collectives/tcp/tcp_address.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/file.hpp"
#include "base/net/addresses.hpp"

namespace mayfly::collectives {
namespace {

// Splits off what precedes the first `separator`; all of it if there is none.
std::string_view take_until(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view head = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return head;
}

}  // namespace

std::string to_string(const TcpAddress& address) {
  std::string text = "tcp:" + mayfly::to_string(Endpoint{address.host, address.port});
  if (!address.unix_name.empty()) {
    text += fmt::format(";unix:{};host:{}", address.unix_name, address.host_id);
  }
  return text;
}

Result<TcpAddress> parse_tcp_address(std::string_view text) {
  TcpAddress address;
  bool wrong = false;
  for (std::string_view rest = text; !rest.empty() && !wrong;) {
    std::string_view value = take_until(rest, ';');
    const std::string_view key = take_until(value, ':');
    if (key == "tcp") {
      Result<Endpoint> endpoint = parse_endpoint(std::string(value));
      wrong = !endpoint.ok();
      if (!wrong) {
        address.host = std::move(endpoint.value().host);
        address.port = endpoint.value().port;
      }
    } else if (key == "unix") {
      address.unix_name = value;
    } else if (key == "host") {
      address.host_id = value;
    } else if (key != "images") {  // that is for others, see engine/processes/store_transport
      wrong = true;
    }
  }
  if (wrong || address.port == 0) {
    return Error{Errc::kInvalidInput, fmt::format("not a tcp address: \"{}\"", text)};
  }
  return address;
}

std::string this_host_id() {
  Result<std::string> boot = read_text_file("/proc/sys/kernel/random/boot_id", 64);
  std::array<char, 64> space{};
  const auto length = ::readlink("/proc/self/ns/net", space.data(), space.size());
  if (!boot.ok() || length <= 0) {
    return {};
  }
  std::string id;
  for (const char c : boot.value() + std::string(space.data(), static_cast<std::size_t>(length))) {
    const bool is_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (is_digit) {
      id += c;
    }
  }
  return id;
}

}  // namespace mayfly::collectives
