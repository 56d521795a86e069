#pragma once

// Groups whose members are threads of one process and exchange data through memory, not sockets.
// They let a test control deaths exactly: a member can die at any operation, before it, after it,
// or so that only some of the other members get the result.

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
  kBefore,  ///< it does not begin the operation, so no member gets the result
  kDuring,  ///< only the members of even rank get the result
  kAfter    ///< all members get the result
};

/// For test reports.
void PrintTo(Death death, std::ostream* out);

class MemoryHub {
 public:
  /// Called before each operation of a member: returns whether it dies there. On the member's
  /// thread, without a lock of the hub.
  using Fate = std::function<std::optional<Death>(MemberId member)>;
  /// Called after the member has died there, on the same thread.
  using Died = std::function<void(MemberId member)>;

  MemoryHub(Fate fate, Died died) : fate_(std::move(fate)), died_(std::move(died)) {}

  [[nodiscard]] std::unique_ptr<collectives::Transport> make_transport(const std::string& address);
  /// Makes every group with this member fail and blame it. Any thread.
  void bury(MemberId member);

 private:
  friend class MemoryGroup;
  friend class MemoryTransport;

  struct Operation {
    std::vector<void*> buffers;  // by rank; null = the member has not begun the operation
    std::size_t arrived = 0;
    std::optional<Death> death;     // of one of the members
    std::vector<bool> is_complete;  // by rank
  };
  /// The state that the members of one view's group share.
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
