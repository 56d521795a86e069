#pragma once

// A parameter server: some shards of the parameters, each with a thread of its own, and their
// membership in the job. It runs in a process of its own (`mayfly ps-server`) or in the process of
// a worker that carries it; then worker and server are one member, which is lost as a whole.

#include <memory>
#include <string>

#include "elastic/net/member_client.hpp"
#include "engine/job/job.hpp"
#include "engine/parameter_server/ps_link.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

/// The place of a server in the job.
struct ServerPlace {
  std::uint32_t index = 0;
  bool computes = false;  ///< it is in the process of a worker
};

class PsServer {
 public:
  /// Listens with its shards. `job` outlives it; `initial` is copied. kIo, kInvalidInput.
  static Result<std::unique_ptr<PsServer>> start(const Job& job, const ReductionLayout& layout,
                                                 const nn::ModelState& initial, ServerPlace place);
  ~PsServer();

  /// The address with which the member joins the job. It contains those of the shards.
  [[nodiscard]] std::string address() const;
  /// Serves until the order to leave, then calls finish(); returns that order.
  elastic::member_effect::Leave run(elastic::MemberClient& client);

  // The parts of run(), for the process of a worker, which computes meanwhile:
  /// Sets the member and the link of this process. To be called before the client is started; both
  /// live until the end of finish().
  void join(elastic::MemberClient& client, PsLink& link);
  /// To be called with every view, on the control thread.
  void meet(const elastic::View& view);
  /// Lets the first shard begin no new step until the next view. Any thread.
  void hold();
  /// To be called after the order to leave, when this process itself has no connection to a shard
  /// any more. Serves until no worker is connected, or has received anything for ten seconds (ten
  /// minutes at most), sends the shards' records, and ends their threads. If this process was
  /// evicted or is late (is_late()), it does not wait for workers.
  void finish(const elastic::member_effect::Leave& leave);
  /// Whether this server joined a running job that already had its servers: its parameters are not
  /// those that the job has trained, and it has asked to leave. Valid after the order to leave.
  [[nodiscard]] bool is_late() const;

 private:
  struct Parts;
  explicit PsServer(std::unique_ptr<Parts> parts);
  void report() const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace mayfly::engine
