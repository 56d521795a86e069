#pragma once

// The training loop of one worker of a job with parameter servers: it carries out the actions that
// WorkerFlow decides, with the compute threads, the loader and the records of all-reduce training.
// Trainer thread.

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "collectives/group_engine.hpp"
#include "collectives/parameter_server/core/worker_flow.hpp"
#include "collectives/parameter_server/shard_clients.hpp"
#include "elastic/net/member_client.hpp"
#include "elastic/net/progress_board.hpp"
#include "engine/network/compute_pool.hpp"
#include "engine/parameter_server/ps_job.hpp"
#include "engine/parameter_server/ps_link.hpp"
#include "engine/parameter_server/ps_server.hpp"
#include "engine/server_roles/ps_servers.hpp"
#include "engine/training/peer_reach.hpp"
#include "engine/transfers/checkpoint_writer.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// When a worker that was cut off from a server may train again: the server must accept
/// connections.
inline constexpr ReachRule kServerReach{.takes_refusals = false, .first_wait = seconds(10)};

/// The parts that the trainer works with; all of them outlive it.
struct PsTrainerParts {
  const Job& job;
  PsJob ps;
  const ReductionLayout& layout;
  datasets::Loader& loader;
  ComputePool& pool;
  elastic::MemberClient& client;
  CheckpointWriter& checkpoints;
  elastic::ProgressBoard& board;
  collectives::DelaySource delay;  ///< of sent messages; empty = none
  PeerReach& reach;                ///< by kServerReach; kept over memberships
  PsServer* server = nullptr;      ///< the server that this process carries; null = none
};

class PsTrainer {
 public:
  /// The job starts after the step of `initial`; the parameters are those of the shards.
  PsTrainer(PsTrainerParts parts, const nn::ModelState& initial);

  /// To be called before this worker reports that it is ready. If it was cut off from a server,
  /// blocks until that server answers, or until ReachRule allows to join without an answer. False
  /// if the worker was ordered to leave. The client must have been started with link(), because
  /// orders arrive meanwhile.
  [[nodiscard]] bool wait_for_link();
  /// Trains until the order to leave, which it returns. The client must have been started with
  /// link().
  elastic::member_effect::Leave run();
  [[nodiscard]] PsLink& link() { return link_; }
  /// The last step in this worker's records, for the record that it sends at the end.
  [[nodiscard]] Step committed() const { return recorded_; }

 private:
  using Clients = parameter_server::ShardClients;

  /// Waits for new views and new work, for a short time.
  void wait();
  void follow_view();
  void follow_rewind();
  Result<std::unique_ptr<Clients>> connect();
  void report_lost_servers(const elastic::View& view);
  void report_unreachable(std::uint32_t shard, parameter_server::ConnectionFault fault);
  [[nodiscard]] parameter_server::PayloadTarget target(std::uint32_t shard, bool with_momentum);
  void act(const parameter_server::FlowAction& action);
  /// False if an order to leave or a failure has ended the wait.
  [[nodiscard]] bool wait_until_sent();
  void adopt(const parameter_server::flow::Adopt& adopted);
  void compute(const parameter_server::flow::Compute& action);
  void probe(const parameter_server::flow::Probe& action);
  [[nodiscard]] bool compute_slice(const MicrobatchSlice& slice);
  [[nodiscard]] bool may_diverge(std::uint64_t slice) const;
  [[nodiscard]] parameter_server::PushFacts facts_of(const MicrobatchSlice& slice) const;
  /// The state of all shards, if it is of one version and between two steps. An error also if a
  /// shard may be lost: a new view has begun while this worker was not ordered to leave, or no part
  /// of a state has arrived for a minute.
  [[nodiscard]] Result<nn::ModelState> fetch_state();
  void save_last_state();
  void snapshot(const parameter_server::flow::Snapshot& action);
  void evaluate(const nn::ModelState& state);
  void finish();
  /// Writes a line to the log and to events.jsonl.
  void note(const char* kind, const std::string& text);
  void fail(const std::string& reason);
  [[nodiscard]] bool has_leave_order() const { return link_.leave_order().has_value(); }
  [[nodiscard]] nn::ModelState blank_state() const;

  PsTrainerParts parts_;
  const WakeUp wake_;
  PsLink link_;
  parameter_server::WorkerFlow flow_;
  PsServers servers_;
  nn::ModelState held_;                       // the state with which gradients are computed
  nn::ModelState fresh_;                      // receives the shards' answers
  std::vector<AlignedBuffer<float>> states_;  // receive snapshots: values, then momentum
  std::unique_ptr<Clients> clients_;          // null before the first view
  std::optional<ViewId> seen_;
  std::optional<ViewId> cut_off_in_;  // the view in which it has reported that it is cut off
  std::uint64_t adoptions_ = 0;
  Step recorded_;
  std::pair<std::uint64_t, std::uint64_t> saved_;  // version and step of the newest checkpoint
  std::uint64_t fetched_version_ = 0;              // of the state that was fetched last
  bool over_ = false;
  bool failed_ = false;
  bool has_lost_servers_ = false;  // that is why it failed; the job has not ended yet
  std::atomic<bool> has_new_view_ = false;
};

}  // namespace mayfly::engine
