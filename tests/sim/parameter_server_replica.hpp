#pragma once

// One server's part of one shard in simulated time: the product's machine, and numbers instead of
// parameters. For parameter_server_world.cpp and its tests.

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

/// Ways in which a core may be broken; the checkers must notice each (parameter_server_checks.hpp).
enum class PsSabotage : std::uint8_t {
  kNone,
  kLeaksBeforeFollower,  ///< a leader answers before its follower has what the answer follows from
  kFollowerMissesPush,   ///< a follower says that it has a push, and has not
  kRepeatsApplied,       ///< a slice that comes again changes the parameters again
  kWrongSlice,           ///< a worker computes the slice after the one it says
  kArrivalOrder,         ///< a round is summed in the order of arrival
  kVelocityLost,         ///< the state is not carried over a switch of phases
  kStaleBound,           ///< SSP lets a worker be one slice further ahead
  kConfirmsEarly,        ///< a worker says that leases are over before every shard has answered
  kForgetsTheLost,       ///< what a lost worker had leased is not leased again
  kRestoresNothing,      ///< after a divergence the parameters stay as they are
  // With a coordinator only:
  kDeafToTheStopped,  ///< a process that has stopped for a change of view cannot say a last word
  kJudgesSteps,       ///< members' steps are compared as if a step needed everybody
  kForgetsToBeQuiet,  ///< the first shard does not say that everybody is at rest
  kComputesTwice,     ///< a worker pushes its first slice a second time
  kNeglectsTheLate,   ///< a worker that comes late is not heard when it wants work again
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

/// What happened on one shard, in order.
struct PsShardLog {
  std::vector<parameter_server::Push> pushes;
  std::vector<std::uint64_t> gradients;  ///< of each push
  std::vector<std::uint64_t> committed;  ///< slices, in the order in which they were summed
  std::vector<std::size_t> update_sizes;
  std::optional<parameter_server::Rewind> rewind;  ///< training diverged
  std::size_t pushes_before_rewind = 0;            ///< so many were there then
  std::uint64_t model = 0;
  std::string refused;  ///< why a push was refused; workers that follow their leases send no such
};

/// The numbers after an update of what is in `gradients`.
[[nodiscard]] std::uint64_t updated(std::uint64_t model, const std::vector<std::uint64_t>& slices,
                                    const std::map<std::uint64_t, std::uint64_t>& gradients);

class PsReplica {
 public:
  PsReplica(const parameter_server::SyncPlan& plan,
            const parameter_server::ShardCore::Options& options, PsSabotage sabotage)
      : core(plan, options), plan_(plan), sabotage_(sabotage) {}

  /// A push that the machine refuses is noted and forgotten.
  parameter_server::ShardOutcome carry_out(const parameter_server::ShardEvent& event,
                                           std::uint64_t gradient);

  parameter_server::ShardCore core;
  PsShardLog log;
  bool is_alive = true;
  bool leads = false;
  bool told_over = false;  // by the first shard: the job is over
  parameter_server::LeaderLog sent{false};
  parameter_server::FollowerLog followed;
  /// Messages to workers.
  parameter_server::HeldBack<std::function<void()>> waiting;
  std::set<MemberId> present;
  std::set<MemberId> gone;
  std::map<MemberId, std::vector<std::function<void()>>> unread;
  std::map<MemberId, std::uint64_t> questions;  // the newest of each worker
  Instant last_sent;                            // of entries to the follower, which come in order
  Instant last_answered;                        // of what the follower says

 private:
  void apply(const parameter_server::Update& update);

  const parameter_server::SyncPlan& plan_;
  const PsSabotage sabotage_;
  std::map<std::uint64_t, std::uint64_t> kept_;    // slice to gradient
  std::vector<std::uint64_t> arrivals_;            // of what is kept
  std::map<std::uint64_t, std::uint64_t> models_;  // at the beginnings of phases
};

/// The gradient of a slice for one shard, as a number: it depends on all parameters.
[[nodiscard]] std::uint64_t gradient_of(std::uint64_t slice,
                                        const std::vector<std::uint64_t>& parameters,
                                        std::uint32_t shard);
/// Which slice of the job's samples this one is; another number only after a divergence.
[[nodiscard]] std::uint64_t samples_of(const parameter_server::SyncPlan& plan, std::uint64_t slice);

}  // namespace mayfly::sim
