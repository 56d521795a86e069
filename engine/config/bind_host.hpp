#pragma once

// The addresses by which processes of a job reach each other, from `--bind-host` or its default on
// this machine. Any thread; queries the system and resolves names.

#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The default of `--bind-host`: each process determines its address with the functions below.
inline constexpr const char* kAutoHost = "auto";

/// The address to listen on for `--bind-host`: the numeric address of the network interface of that
/// name (IPv4 if it has one, else an IPv6 address that other machines can use), or `host` itself if
/// there is no such interface, without the brackets of an IPv6 address. kNotFound if the interface
/// has no address. kAutoHost is 127.0.0.1 unless it was resolved before.
[[nodiscard]] Result<std::string> listening_host(const std::string& host);

/// The same for `mayfly coordinator`: with kAutoHost the address of the default route's interface.
[[nodiscard]] Result<std::string> coordinator_host(const JobConfig& config);

/// The address at which workers connect to a coordinator that listens on `host`: `host` itself, or
/// the address of the default route's interface if `host` stands for all addresses.
[[nodiscard]] std::string advertised_host(const std::string& host);

/// `config.bind_host` of a worker or a server: with kAutoHost the local address of its connections
/// to the coordinators that `config` names.
[[nodiscard]] std::string worker_host(const JobConfig& config);

/// Checks the address of a process that sends it to other processes. Only a coordinator whose
/// workers get its address from the user does not. kInvalidInput if `host` stands for all addresses
/// of this machine (0.0.0.0 or ::), to which no process can connect.
[[nodiscard]] Result<void> check_reachable_host(const std::string& host);

}  // namespace mayfly::engine
