#pragma once

// A worker's connections to all shards of its job: one each, over a Unix-domain socket on the same
// host, with memory for what is large (shared_slots.hpp), else over TCP. A connection that breaks
// is made again. The first shard, which gives work, is greeted when all others have let us in. One
// thread.

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
  bool share_memory = true;      ///< with shards of this host; false: all goes through sockets
  const WakeUp* wake = nullptr;  ///< ends a wait(); outlives the connections; may be null
  /// How late what is sent leaves (experiments with stragglers); empty: at once.
  std::function<Duration()> delay{};
  /// A shard cannot be reached although the view has its server; told once in each view. kCut: the
  /// network says so.
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
  /// Where a shard's answer goes. Asked when its header has come.
  using Target = std::function<PayloadTarget(std::uint32_t shard, bool with_momentum)>;

  /// `flow` receives leases, answers and new connections.
  static Result<std::unique_ptr<ShardClients>> make(const ShardClientsOptions& options,
                                                    WorkerFlow& flow, Target target);
  virtual ~ShardClients() = default;

  /// The view in which shards accept this worker. Called before anything else, and for every new
  /// view.
  virtual void set_view(ViewId view, std::uint64_t key) = 0;
  /// From now on the leader of this shard is there. kInvalidInput if it is no address.
  virtual Result<void> move_to(std::uint32_t shard, const std::string& address) = 0;

  virtual void pull(const flow::Pull& action) = 0;
  /// `gradients`: by shard; they must not change before all_sent().
  virtual void push(const flow::Compute& action, const PushFacts& facts,
                    const std::vector<std::span<const float>>& gradients) = 0;
  virtual void rest() = 0;
  virtual void bye() = 0;
  /// Asks every shard for its whole state; states_arrived() tells when they are there. What an
  /// earlier call asked for is thrown away from now on, also the rest of an answer that has begun
  /// to come: nothing is written to the targets of those answers any more.
  virtual void pull_states() = 0;
  /// What the states are, by shard, when all have come.
  [[nodiscard]] virtual std::optional<std::vector<StateVersion>> states_arrived() = 0;
  /// When part of some shard's state came last, also of one that is thrown away.
  [[nodiscard]] virtual Instant state_came() const = 0;
  [[nodiscard]] virtual bool all_sent() const = 0;

  /// Moves bytes; returns after something has moved or happened, a notified `wake`, or the
  /// deadline.
  virtual void wait(Instant deadline) = 0;
  /// The newest version that this shard has told us.
  [[nodiscard]] virtual std::uint64_t known_version(std::uint32_t shard) const = 0;
};

}  // namespace mayfly::parameter_server
