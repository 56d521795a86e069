#pragma once

// One server's part of a shard, as its leader or its follower: ShardCore, which decides, together
// with the parameters, the gradients that are still needed, and the outputs that the leader holds
// back for its follower. It does not know connections: the caller passes on entries, leases and
// answers. One thread.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <variant>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/parameter_server/core/replicas.hpp"
#include "collectives/parameter_server/core/shard_core.hpp"
#include "collectives/parameter_server/message.hpp"
#include "collectives/parameter_server/pushed_gradients.hpp"
#include "collectives/parameter_server/shard.hpp"

namespace mayfly::parameter_server {

class ShardReplica {
 public:
  /// `plan`, `state` and `listener` outlive it.
  ShardReplica(const ShardOptions& options, const SyncPlan& plan, ShardState& state,
               ShardListener& listener);

  [[nodiscard]] ShardRole role() const { return role_; }
  [[nodiscard]] bool leads() const { return role_ == ShardRole::kLeads; }
  /// True if this shard has the table of leases.
  [[nodiscard]] bool is_first() const { return core_.leases() != nullptr; }
  /// The present parameters, for a worker.
  [[nodiscard]] StateVersion version() const { return core_.order().state(); }
  [[nodiscard]] std::span<const float> values() const { return state_.values(); }
  [[nodiscard]] std::span<const float> momentum() const { return state_.momentum(); }

  /// Memory for the gradients that are being received.
  [[nodiscard]] PushedGradients& gradients() { return gradients_; }

  struct Decision {
    ShardOutcome outcome;
    ReplicaEntry entry;  ///< for the follower, if there is one
  };
  /// Takes an event. `message` is the message that contained it; for an order it has only a type.
  /// `gradient` is the whole gradient of a push, because a worker may die while it sends; for other
  /// events it is empty.
  /// kInvalidInput as ShardCore::take(). kCorrupt if a follower detects that it cannot have done
  /// the same as its leader, or that its parameters are different. The caller then sends the entry,
  /// calls change(), and passes on leases and answers.
  [[nodiscard]] Result<Decision> decide(const ShardEvent& event, const Header& message,
                                        PushedSum gradient);
  /// Carries out the outcome's changes of the parameters, and reports them: at once on a follower,
  /// otherwise at release().
  void change(const ShardOutcome& outcome);

  // Only the leader of the first shard measures; on other servers these two do nothing.
  /// Measures how fast workers are: an event was decided and these leases follow from it.
  void measure(Instant now, const ShardEvent& event, const Grants& grants);
  /// The order that follows from the measurements, if the policy for stragglers requires one. The
  /// follower measures nothing; it is sent this order.
  [[nodiscard]] std::optional<ShardEvent> straggler_order();

  // Replication (core/replicas.hpp):
  /// The entry on which outputs of the leader depend from now on: they must be held back until the
  /// follower has taken it. 0: there is no follower.
  [[nodiscard]] std::uint64_t gate() const { return log_.has_follower() ? log_.last() : 0; }
  /// Outputs that depend on entries up to this one may be sent.
  [[nodiscard]] std::uint64_t safe() const { return log_.safe(); }
  /// The follower has all entries up to this one; release() may follow. kCorrupt if that is
  /// impossible.
  [[nodiscard]] Result<void> taken(std::uint64_t entry) { return log_.taken(entry); }
  /// There is permanently no follower any more; release() must follow.
  void lose_follower() { log_.lose_follower(); }
  /// This follower leads from now on, permanently and without a follower.
  void begin_to_lead() { role_ = ShardRole::kLeads; }

  /// Makes the reports that were held back until the follower had the entries, and recycles
  /// gradients.
  void release();
  /// Tells the listener, once each, that the job is over or that all workers are at rest after an
  /// order to hold. `view` is the newest view.
  void report_rest(ViewId view);
  /// Sets the facts that this class knows.
  void describe(ShardFacts& facts) const;

 private:
  using Report = std::variant<UpdateFacts, RewindFacts>;

  [[nodiscard]] std::uint64_t hash_of_part() const;
  void restore(const Rewind& rewind);
  void apply(const Update& update);
  void note_lease(Instant now, const Grant& grant);
  [[nodiscard]] bool measures() const { return leads() && is_first(); }

  const ShardOptions options_;
  ShardState& state_;
  ShardListener& listener_;
  ShardCore core_;
  ShardRole role_;
  PushedGradients gradients_;
  LeaderLog log_;  // without a follower it holds nothing back
  HeldBack<Report> reports_;
  StragglerWatch speeds_;
  std::uint64_t at_once_ = 0;
  std::uint64_t probes_ = 0;
  bool quiet_reported_ = true;
  bool end_reported_ = false;
};

}  // namespace mayfly::parameter_server
