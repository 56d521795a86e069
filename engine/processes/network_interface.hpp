#pragma once

#include <string>

#include "base/result.hpp"

namespace mayfly::engine {

/// What to listen on for `--bind-host`: the numeric address of the network interface of that name
/// (IPv4 if it has one, else an IPv6 address that other machines can use), or `host` itself if
/// there is no such interface. kNotFound if the interface has no address.
[[nodiscard]] Result<std::string> listening_host(const std::string& host);

}  // namespace mayfly::engine
