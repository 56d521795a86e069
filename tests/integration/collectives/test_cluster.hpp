#pragma once

// Members of a group as threads of the test's process, each with its own Transport.

#include <memory>
#include <string>
#include <vector>

#include "collectives/group.hpp"
#include "tests/unit/collectives/one_process.hpp"

namespace mayfly::collectives::test {

/// The transports on which the contract is tested.
enum class Kind { kShared, kUnix, kTcp, kTcpV6, kTcpRing, kGloo, kFakeNccl, kPaired };
[[nodiscard]] std::string name_of(Kind kind);
/// The kinds that this build and this machine can run.
[[nodiscard]] std::vector<Kind> available_kinds();
[[nodiscard]] Result<std::unique_ptr<Transport>> make_transport(Kind kind);

class Cluster {
 public:
  Cluster(Kind kind, std::uint32_t size);

  /// Spec of `rank` in a view whose members are the transports `members`, in that order.
  [[nodiscard]] GroupSpec spec(ViewId view, const std::vector<std::uint32_t>& members,
                               std::uint32_t rank);
  /// Forms a view of the first `size` transports on threads and expects it to work.
  [[nodiscard]] std::vector<std::unique_ptr<Group>> form(ViewId view, std::uint32_t size);
  [[nodiscard]] std::vector<std::unique_ptr<Group>> form(ViewId view,
                                                         const std::vector<std::uint32_t>& members);

  std::vector<std::unique_ptr<Transport>> transports;
  MemoryStore store;
};

/// Member ids of a cluster: transport i is member 100 + i.
[[nodiscard]] constexpr MemberId member(std::uint32_t transport) {
  return MemberId{100 + transport};
}

}  // namespace mayfly::collectives::test
