#include "engine/config/bind_host.hpp"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/net/addresses.hpp"

namespace mayfly::engine {
namespace {

std::string without_brackets(const std::string& host) {
  const bool has_both = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has_both ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

Result<void> check_reachable_host(const std::string& host) {
  if (is_wildcard(without_brackets(host))) {
    return Error{Errc::kInvalidInput,
                 fmt::format("--bind-host {}: other processes need one address at which they can "
                             "reach this process; name an address or a network interface of this "
                             "machine, or leave --bind-host out",
                             host)};
  }
  return {};
}

Result<std::string> coordinator_host(const JobConfig& config) {
  return config.bind_host == kAutoHost ? Result<std::string>(default_address())
                                       : listening_host(config.bind_host);
}

std::string advertised_host(const std::string& host) {
  return check_reachable_host(host).ok() ? host : default_address();
}

std::string worker_host(const JobConfig& config) {
  if (config.bind_host != kAutoHost) {
    return config.bind_host;
  }
  std::vector<Endpoint> coordinators;
  for (const std::string& text : coordinator_endpoints(config)) {
    if (Result<Endpoint> endpoint = parse_endpoint(text); endpoint.ok()) {
      coordinators.push_back(std::move(endpoint).value());
    }
  }
  return address_towards(coordinators);
}

Result<std::string> listening_host(const std::string& host) {
  if (host == kAutoHost) {
    return std::string(kLoopbackHost);
  }
  const std::optional<std::string> address = address_of_interface(host);
  if (address && address->empty()) {
    return Error{Errc::kNotFound,
                 fmt::format("--bind-host {}: this network interface has no address that other "
                             "machines can use; name another interface, or an address",
                             host)};
  }
  return address.value_or(without_brackets(host));
}

}  // namespace mayfly::engine
