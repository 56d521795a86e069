#pragma once

// One shard of the parameters: a thread with an event loop that owns a contiguous range of the
// flattened state. It receives pushes, lets ShardCore decide, applies updates and answers; or it
// follows a leader of the same range elsewhere. docs/parameter_server.md describes all parts.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "collectives/parameter_server/core/shard_core.hpp"
#include "collectives/parameter_server/message.hpp"
#include "collectives/parameter_server/slice_gradient.hpp"

namespace mayfly::parameter_server {

/// The numbers of a shard. Used by the shard's thread only, while it runs.
class ShardState {
 public:
  virtual ~ShardState() = default;
  /// One update: the mean of these slices' microbatches, summed in this order.
  virtual void apply(std::span<const SliceGradient> slices, const Update& update) = 0;
  /// Keeps a copy of the state before this slice of the job, for restore(); only the last two
  /// copies are needed.
  virtual void keep(std::uint64_t /*slice*/) {}
  /// Restores the copy that was kept before this slice.
  virtual void restore(std::uint64_t /*slice*/) {}
  /// The parameters that workers compute with.
  [[nodiscard]] virtual std::span<const float> values() const = 0;
  /// The momentum, which only updates need; valid as long as values().
  [[nodiscard]] virtual std::span<const float> momentum() const = 0;
};

/// One update of the first shard, for the records.
struct UpdateFacts {
  Update update;
  std::uint32_t samples = 0;
  std::uint32_t correct = 0;
  std::uint32_t microbatches = 0;
  double loss = 0;  ///< sum over the microbatches
  std::array<std::uint32_t, 4> sample_hash{};
};

/// Training has diverged and continues from an earlier state.
struct RewindFacts {
  Rewind rewind;
  std::uint64_t step = 0;  ///< the committed step; later steps are undone
  std::string reason;      ///< on the first shard, and while it has had the same leader
};

/// Called by the shard's thread; must not block.
class ShardListener {
 public:
  virtual ~ShardListener() = default;
  /// A leader has applied an update, and its follower has it, too.
  virtual void on_update(const UpdateFacts& /*facts*/) {}
  /// A follower has applied the same update as its leader, which is the one that reports it.
  virtual void on_followed(const UpdateFacts& /*facts*/) {}
  /// A leader has restored an earlier state, and its follower has done so, too; or a follower has.
  virtual void on_rewound(const RewindFacts& /*facts*/) {}
  /// A follower leads from now on, with parameters of this version.
  virtual void on_lead(std::uint64_t /*version*/) {}
  /// A leader cannot exchange anything with this server, its follower; called once in each view.
  virtual void on_unreachable(MemberId /*follower*/) {}
  /// A leader whose follower is lost continues alone.
  virtual void on_alone(std::uint64_t /*version*/) {}
  /// A follower cannot have done the same as its leader; the job must not continue.
  virtual void on_diverged(const std::string& /*why*/) {}
  /// The shard is held and no worker has anything left to do; `view` is its newest view.
  virtual void on_quiet(ViewId /*view*/) {}
  /// The job is over: a worker has reported it, or the first shard's last state is recorded.
  virtual void on_over() {}
  /// The first shard has found that a worker is a straggler, or is no straggler any more; the
  /// policy changes at the end of the step.
  virtual void on_straggler(const StragglerChange& /*change*/) {}
};

enum class ShardRole : std::uint8_t {
  kLeads,    ///< decides, and answers workers
  kFollows,  ///< repeats the events of the leader of the same shard, and may lead later
};

struct ShardOptions {
  std::uint32_t number = 0;        ///< number among the shards of the job; 0 is the first
  std::uint32_t shards = 1;        ///< of the job
  std::string host = "127.0.0.1";  ///< address to listen on
  bool payload_hashes = false;     ///< in answers
  StragglerPolicy stragglers = StragglerPolicy::kNone;
  StragglerOptions straggling{};  ///< when a worker is a straggler
  DivergenceOptions divergence{};
  ShardRole role = ShardRole::kLeads;
  bool has_follower = false;  ///< of a leader: outputs wait until its follower has the entries
};

/// The part of a view that concerns a shard.
struct ShardView {
  ViewId view{};
  std::uint64_t key = 0;
  std::set<MemberId> workers;
  ShardRole role = ShardRole::kLeads;  ///< a shard that has led does not follow again
  std::string follower{};  ///< of a leader: the follower's address; empty: there is none any more
  MemberId follower_id{};  ///< then: the follower's server
};

/// The amount of work that a shard has done; read after it has stopped, or as a snapshot.
struct ShardFacts {
  bool leads = true;
  std::uint64_t version = 0;
  std::uint64_t committed = 0;  ///< slices of the job, including those before it was resumed
  std::uint64_t repeats = 0;
  std::uint64_t late = 0;
  std::uint64_t reissued = 0;
  std::uint64_t mixed = 0;
  std::uint64_t at_once = 0;  ///< slices of bsp that were updates of their own
  std::uint64_t undone = 0;   ///< slices that were committed and must be done again
  std::uint64_t probes = 0;   ///< slices that were computed only to measure a worker's speed
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_shared = 0;    ///< of both, through memory shared with workers
  std::uint64_t bytes_followed = 0;  ///< sent to the follower
  std::uint64_t bytes_sent = 0;      ///< that the sockets of its present connections have accepted
  std::map<std::uint64_t, std::uint64_t> staleness;
};

class Shard {
 public:
  /// Listens, and starts the thread. `plan`, `state` and `listener` outlive the shard. kIo.
  static Result<std::unique_ptr<Shard>> start(const ShardOptions& options, const SyncPlan& plan,
                                              ShardState& state, ShardListener& listener);
  virtual ~Shard() = default;

  // Any thread:
  /// Where workers connect (collectives/tcp/tcp_address.hpp).
  [[nodiscard]] virtual const std::string& address() const = 0;
  /// A new view has begun; work continues.
  virtual void set_view(ShardView view) = 0;
  /// No new step is begun until the next view; on_quiet() may follow.
  virtual void hold() = 0;
  [[nodiscard]] virtual ShardFacts facts() const = 0;
  [[nodiscard]] virtual bool has_connections() const = 0;

  /// Closes every connection and ends the thread, so the listener is not called any more. Later
  /// calls of set_view() and hold() have no effect, and facts() do not change. To be called by one
  /// thread, not the shard's; a second call does nothing. The destructor calls it, too.
  virtual void stop() = 0;
};

}  // namespace mayfly::parameter_server
