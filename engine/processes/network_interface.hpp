#pragma once

#include <string>

#include "base/result.hpp"

namespace mayfly::engine {

/// What to listen on for `--bind-host`: the numeric address of the network interface of that name
/// (IPv4 if it has one, else an IPv6 address that other machines can use), or `host` itself if
/// there is no such interface, without the brackets that an IPv6 address may stand in. kNotFound if
/// the interface has no address.
[[nodiscard]] Result<std::string> listening_host(const std::string& host);

/// Of a process that tells others where it listens, which is every one but a coordinator whose
/// workers are given its address by hand. kInvalidInput if `host` stands for all addresses of this
/// machine (0.0.0.0 or ::): nobody can connect to that.
[[nodiscard]] Result<void> check_reachable_host(const std::string& host);

}  // namespace mayfly::engine
