#pragma once

// All decisions of one shard as one pure state machine: the order of updates and, on the first
// shard, the leases. Equal events in equal order give equal outcomes, so a follower that is given
// the events of its leader is always an earlier moment of the same machine.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "collectives/parameter_server/core/lease_desk.hpp"
#include "collectives/parameter_server/core/update_order.hpp"

namespace mayfly::parameter_server {

enum class ShardEventKind : std::uint8_t {
  kPush,        ///< `push`, `serial` and `wants_lease`
  kPull,        ///< `push` for its worker, clock and wanted version
  kRest,        ///< `push` for its worker; `serial`
  kConnected,   ///< `push` for its worker; `serial`: leases that it has received
  kWorkers,     ///< `workers` are those of the present view
  kHold,        ///< no new step is begun until the next kWorkers
  kStragglers,  ///< `stragglers` are much slower than the others now
};

/// Something that a shard is told.
struct ShardEvent {
  ShardEventKind kind = ShardEventKind::kHold;
  Push push{};
  std::uint64_t serial = 0;  ///< the worker's leases up to this one are over
  bool wants_lease = false;
  std::set<MemberId> workers{};
  std::map<MemberId, double> stragglers{};  ///< and how many times
};

/// What follows from it, in this order.
struct ShardOutcome {
  std::optional<PushFate> fate;    ///< of a push
  std::optional<Update> update;    ///< to be carried out now, from what is staged
  Grants grants;                   ///< new leases
  std::vector<MemberId> answers;   ///< who gets the parameters then, in order
  std::vector<MemberId> departed;  ///< workers that are members no more
};

class ShardCore {
 public:
  /// The first shard has a desk for leases.
  ShardCore(const SyncPlan& plan, bool is_first, const LeaseDesk::Options& options);

  /// kInvalidInput as UpdateOrder::pushed(); then nothing has changed.
  [[nodiscard]] Result<ShardOutcome> take(const ShardEvent& event);

  [[nodiscard]] const UpdateOrder& order() const { return order_; }
  /// Null but on the first shard.
  [[nodiscard]] const LeaseDesk* desk() const { return desk_ ? &*desk_ : nullptr; }
  /// How many slices came that were there before.
  [[nodiscard]] std::uint64_t repeats() const { return repeats_; }

 private:
  [[nodiscard]] Result<ShardOutcome> pushed(const ShardEvent& event);
  void meet(const std::set<MemberId>& workers, ShardOutcome& outcome);
  void rest(const ShardEvent& event, ShardOutcome& outcome);

  UpdateOrder order_;
  std::optional<LeaseDesk> desk_;
  std::set<MemberId> workers_;
  std::uint64_t repeats_ = 0;
};

}  // namespace mayfly::parameter_server
