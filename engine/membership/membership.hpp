#pragma once

// One membership of a worker that trains by all-reduce: from the moment when the coordinator has
// admitted it until it leaves. It knows the model and the data only through the trainer's ports.

#include <deque>
#include <functional>

#include "base/bytes.hpp"
#include "collectives/group.hpp"
#include "datasets/feed.hpp"
#include "elastic/net/member_client.hpp"
#include "elastic/net/progress_board.hpp"
#include "elastic/net/reconnect.hpp"
#include "engine/job/job.hpp"
#include "engine/membership/worker_join.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/run/records.hpp"
#include "engine/run/trace.hpp"
#include "engine/training/computer.hpp"
#include "engine/training/peer_reach.hpp"
#include "engine/training/state_keeper.hpp"

namespace mayfly::engine {

/// Reports on the job's steps that the coordinator may not have received. They outlive a
/// membership: the job may go on from steps that only a disconnected worker can report.
struct UnconfirmedReports {
  elastic::ReportQueue reports;
  std::deque<StepRecord> steps;  ///< the last ones
};

/// When an evicted worker may train again: other workers must be able to exchange data with it, but
/// the processes of some of them may have ended since.
inline constexpr ReachRule kWorkerReach{.takes_refusals = true, .first_wait = seconds(30)};

/// All of it outlives the membership.
struct MembershipParts {
  const Job& job;
  ReductionLayout& layout;
  datasets::Feed* feed;  ///< null = none
  Computer& computer;
  StateKeeper& state;  ///< with which `computer` computes
  collectives::Transport& transport;
  elastic::ProgressBoard& board;
  PeerReach& reach;  ///< by kWorkerReach; kept over memberships
  const Bytes& token;
  UnconfirmedReports& unconfirmed;
  LeaveSignals& signals;
  Trace* trace = nullptr;                ///< null = none
  std::function<void()> after_commit{};  ///< see TrainerParts
  collectives::DeviceSums* device_sums = nullptr;
};

/// Trains as the member that `client` has become, until the order to leave, which it returns. The
/// state may be observed while members train (StateKeeper::make_observed) only if `can_observe`.
[[nodiscard]] elastic::member_effect::Leave train_as_member(const MembershipParts& parts,
                                                            elastic::MemberClient& client,
                                                            bool can_observe = true);

}  // namespace mayfly::engine
