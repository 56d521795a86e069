#pragma once

// Members of a group as threads of the test's process, each with its own Transport.

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/group.hpp"

namespace mayfly::collectives::test {

/// What the contract is run over.
enum class Kind { kShared, kUnix, kTcp, kTcpV6, kTcpRing, kGloo, kFakeNccl, kPaired };
[[nodiscard]] std::string name_of(Kind kind);
/// The kinds that this build and this machine can run.
[[nodiscard]] std::vector<Kind> available_kinds();
[[nodiscard]] Result<std::unique_ptr<Transport>> make_transport(Kind kind);

/// The rendezvous of all views of one cluster; views are kept apart by their keys' prefix.
class MemoryStore final : public RendezvousStore {
 public:
  Result<void> set(const std::string& key, ByteSpan value) override;
  Result<Bytes> get(const std::string& key, Instant deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
};

/// Runs `body(rank)` for every rank below `size` on a thread of its own and joins them all.
void on_all(std::uint32_t size, const std::function<void(std::uint32_t)>& body);

/// Deadline that only a hang can reach.
[[nodiscard]] Instant far();

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
