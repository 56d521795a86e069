#pragma once

// A worker's connections to all shards of its job, one for each: on the same host over a
// Unix-domain socket with shared memory for payloads (shared_slots.hpp), otherwise over TCP. A
// connection that breaks is made again. The first shard, which grants leases, is greeted when all
// others have sent kWelcome. One thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/parameter_server/connection.hpp"
#include "collectives/parameter_server/core/update_order.hpp"
#include "collectives/parameter_server/core/worker_flow.hpp"

namespace mayfly::parameter_server {

struct ShardClientsOptions {
  MemberId self{};
  std::vector<std::string> addresses;  ///< by shard
  std::vector<std::size_t> elements;   ///< of each shard's range
  bool payload_hashes = false;
  bool share_memory = true;  ///< with shards of this host; false: everything is sent over sockets
  const WakeUp* wake = nullptr;  ///< ends a wait(); outlives the connections; may be null
  /// Delay before messages are sent, for experiments with stragglers; empty = none.
  std::function<Duration()> delay{};
  /// Called once per view if a shard cannot be reached although its server is in the view.
  std::function<void(std::uint32_t shard, ConnectionFault fault)> on_unreachable{};
};

/// The contents of a push besides the gradient.
struct PushFacts {
  std::uint32_t microbatches = 0;
  std::uint32_t samples = 0;
  std::uint32_t correct = 0;
  double loss = 0;  ///< sum over the microbatches
  std::array<std::uint32_t, 4> sample_hash{};
};

class ShardClients {
 public:
  /// Returns the memory for a shard's answer. Called when the answer's header has arrived.
  using Target = std::function<PayloadTarget(std::uint32_t shard, bool with_momentum)>;

  /// `flow` receives leases, answers and new connections.
  static Result<std::unique_ptr<ShardClients>> make(const ShardClientsOptions& options,
                                                    WorkerFlow& flow, Target target);
  virtual ~ShardClients() = default;

  /// The present view, which the greeting names. To be called first, and for every new view.
  virtual void set_view(ViewId view, std::uint64_t key) = 0;
  /// The address of this shard's leader from now on. kInvalidInput if it is not one.
  virtual Result<void> move_to(std::uint32_t shard, const std::string& address) = 0;

  virtual void pull(const flow::Pull& action) = 0;
  /// `gradients`: by shard; they must not change before all_sent().
  virtual void push(const flow::Compute& action, const PushFacts& facts,
                    const std::vector<std::span<const float>>& gradients) = 0;
  virtual void rest() = 0;
  virtual void bye() = 0;
  /// Requests the whole state of every shard; see states_arrived(). Answers to an earlier call are
  /// discarded from now on, also the rest of an answer that has begun to arrive: nothing is written
  /// to their targets any more.
  virtual void pull_states() = 0;
  /// The versions of the states, by shard; nothing until all have arrived.
  [[nodiscard]] virtual std::optional<std::vector<StateVersion>> states_arrived() = 0;
  /// When bytes of some shard's state arrived last, including those that are discarded.
  [[nodiscard]] virtual Instant state_received_at() const = 0;
  [[nodiscard]] virtual bool all_sent() const = 0;

  /// Sends and receives; returns when something was sent, received or has changed, when `wake` was
  /// notified, or at the deadline.
  virtual void wait(Instant deadline) = 0;
  /// The newest version that this shard has reported.
  [[nodiscard]] virtual std::uint64_t known_version(std::uint32_t shard) const = 0;
};

}  // namespace mayfly::parameter_server
