#pragma once

// Groups whose members are threads of one process and exchange through memory, in place of sockets.
// What they lack in speed they have in control: a member can die at any one operation, before it
// takes part, after it, or so that only some of the others get the result.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "collectives/group.hpp"

namespace mayfly::test_support {

/// How a member dies at an operation.
enum class Death {
  kBefore,  ///< it never takes part, so nobody gets the result
  kDuring,  ///< the members of even rank get the result, the others do not
  kAfter    ///< all get the result
};

/// For test reports.
void PrintTo(Death death, std::ostream* out);

class MemoryHub {
 public:
  /// Asked before each operation of a member: whether it dies there. On the member's thread, which
  /// holds no lock of the hub.
  using Fate = std::function<std::optional<Death>(MemberId member)>;
  /// Told when it has died there; the same thread.
  using Died = std::function<void(MemberId member)>;

  MemoryHub(Fate fate, Died died) : fate_(std::move(fate)), died_(std::move(died)) {}

  [[nodiscard]] std::unique_ptr<collectives::Transport> make_transport(const std::string& address);
  /// From now on every group with this member fails, and names it. Any thread.
  void bury(MemberId member);

 private:
  friend class MemoryGroup;
  friend class MemoryTransport;

  struct Operation {
    std::vector<void*> buffers;  // by rank; null = has not come yet
    std::size_t arrived = 0;
    std::optional<Death> death;     // of one of them
    std::vector<bool> is_complete;  // by rank
  };
  /// What the members of one view's group share.
  struct Shared {
    std::vector<collectives::Peer> peers;
    std::set<Rank> formed;
    std::set<Rank> aborted;
    std::map<std::uint64_t, Operation> operations;  // by number
  };
  /// Under mutex_: ok, kPeerLost with the dead member, or kAborted by this rank itself.
  [[nodiscard]] Result<void> state_of(const Shared& shared, Rank self) const;

  const Fate fate_;
  const Died died_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ViewId, std::shared_ptr<Shared>> views_;
  std::set<MemberId> dead_;
};

}  // namespace mayfly::test_support
