#pragma once

// All decisions of one shard as one pure state machine: the order of updates and, on the first
// shard, the leases. Equal events in equal order give equal outcomes, so a follower that gets its
// leader's events is always in a state that the leader was in before. One thread.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "collectives/parameter_server/core/divergence_watch.hpp"
#include "collectives/parameter_server/core/lease_table.hpp"
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

/// A message or order that a shard has received.
struct ShardEvent {
  ShardEventKind kind = ShardEventKind::kHold;
  Push push{};
  std::uint64_t serial = 0;  ///< the worker's leases up to this serial are over
  bool wants_lease = false;
  double loss = 0;                 ///< of a push: sum over its microbatches
  std::uint32_t microbatches = 0;  ///< of a push
  std::optional<Rewind> rewind{};  ///< in a worker's message: the rewind of its leases
  std::set<MemberId> workers{};
  std::map<MemberId, double> stragglers{};  ///< and how many times slower
};

/// The results of one event, to be carried out in this order.
struct ShardOutcome {
  std::optional<Rewind> restore;   ///< to be done first: parameters are again as before slice `to`
  std::optional<PushFate> fate;    ///< of a push
  std::optional<Update> update;    ///< to be carried out now, from the staged slices
  Grants grants;                   ///< new leases
  std::vector<MemberId> answers;   ///< workers that are then sent the parameters, in order
  std::vector<MemberId> departed;  ///< workers that are not members any more
};

class ShardCore {
 public:
  struct Options {
    bool is_first = true;  ///< it has the table of leases
    LeaseTable::Options leases{};
    DivergenceOptions divergence{};
  };
  ShardCore(const SyncPlan& plan, const Options& options);
  ShardCore(const ShardCore&) = delete;
  ShardCore& operator=(const ShardCore&) = delete;

  /// Advances the machine by one event. kInvalidInput as UpdateOrder::pushed(), or if the Rewind
  /// that a worker reports is impossible; then nothing has changed.
  [[nodiscard]] Result<ShardOutcome> take(const ShardEvent& event);

  /// The present plan.
  [[nodiscard]] const SyncPlan& plan() const { return plan_; }
  [[nodiscard]] const UpdateOrder& order() const { return order_; }
  /// Null except on the first shard.
  [[nodiscard]] const LeaseTable* leases() const { return leases_ ? &*leases_ : nullptr; }
  /// Number of slices that were pushed again after they had arrived.
  [[nodiscard]] std::uint64_t repeats() const { return repeats_; }
  /// Number of slices that were undone by a Rewind.
  [[nodiscard]] std::uint64_t undone() const {
    return restored_ ? plan_.rewound()->at - plan_.rewound()->to : 0;
  }
  /// Why training is considered to have diverged; on the first shard only. Empty if it has not.
  [[nodiscard]] const std::string& divergence() const { return divergence_.reason(); }

 private:
  [[nodiscard]] Result<ShardOutcome> pushed(const ShardEvent& event);
  void meet(const std::set<MemberId>& workers, ShardOutcome& outcome);
  void rest(const ShardEvent& event, ShardOutcome& outcome);
  [[nodiscard]] Result<void> check_rewind(const Rewind& rewind) const;
  void restore(const Rewind& rewind, ShardOutcome& outcome);
  void watch(const Update& update);

  const Options options_;
  SyncPlan plan_;
  UpdateOrder order_;
  std::optional<LeaseTable> leases_;
  DivergenceWatch divergence_;
  struct Loss {
    double sum = 0;
    std::uint32_t microbatches = 0;
  };
  std::map<std::uint64_t, Loss> losses_;  // losses of slices that are not in an update yet
  std::deque<std::uint64_t> cuts_;  // beginnings of the last two phases whose parameters are kept
  bool restored_ = false;
  std::set<MemberId> workers_;
  std::uint64_t repeats_ = 0;
};

}  // namespace mayfly::parameter_server
