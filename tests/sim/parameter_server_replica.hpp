#pragma once

// One replica of a shard (its leader or its follower) in simulated time: the product's machine and
// numbers instead of parameters. For parameter_server_world.cpp and its tests.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collectives/parameter_server/core/replicas.hpp"
#include "collectives/parameter_server/core/shard_core.hpp"
#include "collectives/parameter_server/core/sync_plan.hpp"
#include "tests/sim/event_queue.hpp"

namespace mayfly::sim {

/// Defects that are planted in a run. The checkers (parameter_server_checks.hpp) must detect each.
enum class PsSabotage : std::uint8_t {
  kNone,
  kLeaksBeforeFollower,  ///< a leader answers before its follower has the events behind the answer
  kFollowerMissesPush,   ///< a follower confirms a push that it has not applied
  kRepeatsApplied,       ///< a slice that is pushed again changes the parameters again
  kWrongSlice,           ///< a worker computes the slice after the one that it names in its push
  kArrivalOrder,         ///< a round is summed in the order of arrival
  kVelocityLost,         ///< the state is not carried over a switch of phases
  kStaleBound,           ///< SSP lets a worker be one slice further ahead
  kConfirmsEarly,        ///< a worker reports that leases are over before every shard has answered
  kForgetsTheLost,       ///< the leases of a lost worker are not given to other workers
  kRestoresNothing,      ///< after a divergence the parameters are not restored
  // With a coordinator only:
  kDeafToTheStopped,  ///< the StoreGet of a process that has stopped for a change of view is
                      ///< ignored
  kJudgesSteps,       ///< members' steps are compared as if a step needed every member
  kForgetsToBeQuiet,  ///< the first shard does not report that all workers are idle
  kComputesTwice,     ///< a worker pushes its first slice a second time
  kNeglectsTheLate,   ///< further requests for work of a worker that joined late are ignored
};
inline constexpr PsSabotage kAllPsSabotage[] = {
    PsSabotage::kLeaksBeforeFollower, PsSabotage::kFollowerMissesPush,
    PsSabotage::kRepeatsApplied,      PsSabotage::kWrongSlice,
    PsSabotage::kArrivalOrder,        PsSabotage::kVelocityLost,
    PsSabotage::kStaleBound,          PsSabotage::kConfirmsEarly,
    PsSabotage::kForgetsTheLost,      PsSabotage::kRestoresNothing,
    PsSabotage::kDeafToTheStopped,    PsSabotage::kJudgesSteps,
    PsSabotage::kForgetsToBeQuiet,    PsSabotage::kComputesTwice,
    PsSabotage::kNeglectsTheLate};
[[nodiscard]] std::string to_text(PsSabotage sabotage);

/// The events of one shard, in order.
struct PsShardLog {
  std::vector<parameter_server::Push> pushes;
  std::vector<std::uint64_t> gradients;  ///< of each push
  std::vector<std::uint64_t> committed;  ///< slices, in the order in which they were summed
  std::vector<std::size_t> update_sizes;
  std::optional<parameter_server::Rewind> rewind;  ///< training diverged
  std::size_t pushes_before_rewind = 0;            ///< number of pushes before that
  std::uint64_t model = 0;
  std::string refused;  ///< why a push was refused; pushes of leased slices never are
};

/// The model after an update with the gradients of `slices`.
[[nodiscard]] std::uint64_t updated(std::uint64_t model, const std::vector<std::uint64_t>& slices,
                                    const std::map<std::uint64_t, std::uint64_t>& gradients);

class PsReplica {
 public:
  PsReplica(const parameter_server::SyncPlan& plan,
            const parameter_server::ShardCore::Options& options, PsSabotage sabotage)
      : core(plan, options), plan_(plan), sabotage_(sabotage) {}

  /// If the machine refuses a push, that is only recorded in the log.
  parameter_server::ShardOutcome carry_out(const parameter_server::ShardEvent& event,
                                           std::uint64_t gradient);

  parameter_server::ShardCore core;
  PsShardLog log;
  bool is_alive = true;
  bool leads = false;
  bool told_over = false;  // the first shard has reported that the job is over
  parameter_server::LeaderLog sent{false};
  parameter_server::FollowerLog followed;
  /// Messages to workers.
  parameter_server::HeldBack<std::function<void()>> waiting;
  std::set<MemberId> present;
  std::set<MemberId> gone;
  std::map<MemberId, std::vector<std::function<void()>>> unread;
  std::map<MemberId, std::uint64_t> questions;  // the newest one of each worker
  Instant last_sent;      // when the last entry reaches the follower; later ones are later
  Instant last_answered;  // when the follower's last answer arrives

 private:
  void apply(const parameter_server::Update& update);

  const parameter_server::SyncPlan& plan_;
  const PsSabotage sabotage_;
  std::map<std::uint64_t, std::uint64_t> kept_;    // slice to gradient
  std::vector<std::uint64_t> arrivals_;            // slices of kept_, in the order of arrival
  std::map<std::uint64_t, std::uint64_t> models_;  // at the beginnings of phases
};

/// The gradient of a slice for one shard, as a number: it depends on all parameters.
[[nodiscard]] std::uint64_t gradient_of(std::uint64_t slice,
                                        const std::vector<std::uint64_t>& parameters,
                                        std::uint32_t shard);
/// The number of this slice in the job's samples; it differs from `slice` only after a divergence.
[[nodiscard]] std::uint64_t samples_of(const parameter_server::SyncPlan& plan, std::uint64_t slice);

}  // namespace mayfly::sim
