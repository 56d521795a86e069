#pragma once

// On which host a member is, as far as the coordinator can tell, and whether the members of other
// hosts could reach it. Pure.

#include <optional>
#include <string>
#include <vector>

namespace mayfly::elastic {

struct MemberPlace {
  std::string host;     ///< equal for members of one host; see host_of_peer()
  std::string address;  ///< where the member says that others find it
  std::string name;     ///< human-readable
};

/// True if `address`, as a member has given it ("tcp:127.0.0.1:4711;unix:..."), means another
/// machine on every machine.
[[nodiscard]] bool means_own_host(const std::string& address);

/// Why `newcomer` and the others could never exchange anything, and what to do: one of them listens
/// on a loopback address, and another one is on another host.
[[nodiscard]] std::optional<std::string> reason_out_of_reach(
    const MemberPlace& newcomer, const std::vector<MemberPlace>& members);

/// Of the other end of a connected socket: its address, or "this host" if that is ours.
[[nodiscard]] std::string host_of_peer(int fd);

/// A host's name as its process gave it, without what has no place in a line of text.
[[nodiscard]] std::string printable(const std::string& name);

}  // namespace mayfly::elastic
