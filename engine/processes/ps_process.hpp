#pragma once

// The membership of a worker or a server in a job with parameter servers, from joining to leaving.

#include <memory>

#include "collectives/group_engine.hpp"
#include "datasets/loader.hpp"
#include "elastic/net/progress_board.hpp"
#include "engine/membership/worker_join.hpp"
#include "engine/network/compute_pool.hpp"
#include "engine/parameter_server/ps_job.hpp"
#include "engine/parameter_server/ps_server.hpp"
#include "engine/state/starting_state.hpp"
#include "engine/training/peer_reach.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

struct PsWorkerParts {
  const Job& job;
  const ReductionLayout& layout;
  datasets::Loader& loader;
  ComputePool& pool;
  elastic::ProgressBoard& board;
  collectives::DelaySource delay;  ///< of sent messages; empty = none
  PeerReach& reach;                ///< by kServerReach; kept over memberships
  const Bytes& token;
  PsServer* server = nullptr;  ///< the server that this process carries; null = none
};

/// Starts the parameter server that this worker carries, on threads of its own; null if it carries
/// none. Server and worker begin with the state that the job is resumed from: it is requested from
/// the coordinator and replaces `start`. kIo, kInvalidInput, and as ask_for_better_state().
[[nodiscard]] Result<std::unique_ptr<PsServer>> start_carried_server(const Job& job,
                                                                     const ReductionLayout& layout,
                                                                     const Bytes& token,
                                                                     const LeaveSignals& signals,
                                                                     StartingState& start);

/// Trains with parameter servers from the moment when this worker is a member until it leaves. The
/// server that it carries ends with it.
[[nodiscard]] elastic::member_effect::Leave train_with_servers(const PsWorkerParts& parts,
                                                               elastic::MemberClient& client,
                                                               const nn::ModelState& initial,
                                                               LeaveSignals& signals);

/// `mayfly ps-server`; returns the exit code. `sentinel` may be null.
[[nodiscard]] int run_ps_server(const JobConfig& config,
                                std::unique_ptr<elastic::Sentinel> sentinel, LeaveSignals& signals);

}  // namespace mayfly::engine
