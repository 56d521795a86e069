#include "collectives/tcp/tcp_address.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <span>
#include <utility>

#include "base/control_group.hpp"
#include "base/digest.hpp"
#include "base/net/addresses.hpp"

namespace mayfly::collectives {
namespace {

// Short, because an address of a parameter server names up to four shards.
constexpr std::size_t kHostIdDigits = 16;

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

std::string host_id_of(std::string_view boot, std::string_view network) {
  if (boot.empty() || network.empty()) {
    return {};
  }
  const std::string both = std::string(boot).append(network);
  return mayfly::to_string(digest_of(std::as_bytes(std::span(both)))).substr(0, kHostIdDigits);
}

std::string this_host_id() {
  std::array<char, 64> space{};
  const auto length = ::readlink("/proc/self/ns/net", space.data(), space.size());
  // The number of the first namespace is the same on every host with the same kernel.
  return host_id_of(content_of_kernel_file("/proc/sys/kernel/random/boot_id"),
                    {space.data(), length < 0 ? 0 : static_cast<std::size_t>(length)});
}

}  // namespace mayfly::collectives
