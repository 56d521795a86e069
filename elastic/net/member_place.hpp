#pragma once

// The host of a member, as far as the coordinator can determine it, and whether members of other
// hosts can reach the member. Any thread; pure, except for host_of_peer().

#include <optional>
#include <string>
#include <vector>

namespace mayfly::elastic {

struct MemberPlace {
  std::string host;     ///< equal for members of one host; see host_of_peer()
  std::string address;  ///< the address that the member has given to the others
  std::string name;     ///< human-readable
};

/// True if `address`, as a member has given it ("tcp:127.0.0.1:4711;unix:..."), is a loopback
/// address: each machine would find itself there.
[[nodiscard]] bool means_own_host(const std::string& address);

/// Why `newcomer` and some other member could never exchange data, and how to correct that; nothing
/// if all can. The reason is that one of them listens on a loopback address, and the other is on
/// another host.
[[nodiscard]] std::optional<std::string> reason_out_of_reach(
    const MemberPlace& newcomer, const std::vector<MemberPlace>& members);

/// The address of the other end of a connected socket, or "this host" if it is one of this host's.
[[nodiscard]] std::string host_of_peer(int fd);

/// A host's name as its process reported it, without characters that do not belong in a line of
/// text.
[[nodiscard]] std::string printable(const std::string& name);

}  // namespace mayfly::elastic
