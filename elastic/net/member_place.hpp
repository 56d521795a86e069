#pragma once

// The host of a member, as far as the coordinator can tell, and whether members of other hosts can
// reach it. Any thread; pure, except for host_of_peer().

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

/// Why `newcomer` and the others could never exchange data, and what to do about it; nothing if
/// they can. The reason is that one of them listens on a loopback address, and another is on
/// another host.
[[nodiscard]] std::optional<std::string> reason_out_of_reach(
    const MemberPlace& newcomer, const std::vector<MemberPlace>& members);

/// The address of the other end of a connected socket, or "this host" if it is one of this host's.
[[nodiscard]] std::string host_of_peer(int fd);

/// A host's name as its process reported it, without characters that do not belong in a line of
/// text.
[[nodiscard]] std::string printable(const std::string& name);

}  // namespace mayfly::elastic
