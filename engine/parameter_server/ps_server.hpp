#pragma once

// A parameter server: some shards of the parameters, each with a thread of its own, and their part
// in the job. It has a process of its own (`mayfly ps-server`), or a worker's process carries it;
// then both are one member, which is lost as a whole.

#include <memory>
#include <string>

#include "elastic/net/member_client.hpp"
#include "engine/job/job.hpp"
#include "engine/parameter_server/ps_link.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// Which server of the job it is.
struct ServerPlace {
  std::uint32_t index = 0;
  bool computes = false;  ///< a worker's process carries it
};

class PsServer {
 public:
  /// Listens with its shards. `job` outlives it; `initial` is copied. kIo, kInvalidInput.
  static Result<std::unique_ptr<PsServer>> start(const Job& job, const ReductionLayout& layout,
                                                 const nn::ModelState& initial, ServerPlace place);
  ~PsServer();

  /// What to join the job with: where the shards are.
  [[nodiscard]] std::string address() const;
  /// Serves until told to leave, then as finish() says; returns that order.
  elastic::member_effect::Leave run(elastic::MemberClient& client);

  // What run() consists of, for a process that does something else meanwhile:
  /// We are this member, and `link` is what we say about it. Before the client is started; both
  /// live until the end of finish().
  void join(elastic::MemberClient& client, PsLink& link);
  /// Call with every view, on the control thread.
  void meet(const elastic::View& view);
  /// No new step may begin until the next view. Any thread, as long as there is a server.
  void hold();
  /// After the order to leave, when this process has no connection to any shard any more: serves
  /// until no worker is connected, for ten seconds at most, reports, and ends the shards' threads.
  /// Does not wait if this process was evicted or has come late.
  void finish(const elastic::member_effect::Leave& leave);
  /// The job was under way with its servers when we came: what we hold is not what it has trained,
  /// and we have asked to leave. After the order to leave.
  [[nodiscard]] bool is_late() const;

 private:
  struct Parts;
  explicit PsServer(std::unique_ptr<Parts> parts);
  void report() const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace mayfly::engine
