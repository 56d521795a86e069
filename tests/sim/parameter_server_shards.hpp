#pragma once

// The servers of a simulated job: each shard's leader and its follower, what they say to each
// other, and what happens when one is lost. For parameter_server_world.cpp.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/random.hpp"
#include "collectives/parameter_server/core/replicas.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {

class PsShards {
 public:
  /// What leaves a leader, for a worker: leases of the first shard, and answers (by worker, to this
  /// question) with the numbers of that moment.
  struct Hooks {
    std::function<void(const parameter_server::Grants&)> deliver;
    std::function<void(std::uint32_t shard, const std::map<MemberId, std::uint64_t>& questions,
                       std::uint64_t version, std::uint64_t model)>
        answer;
    std::function<void(std::uint32_t shard)> took_over;  ///< a follower leads
  };

  /// Everything outlives it.
  PsShards(const PsOptions& options, const parameter_server::SyncPlan& plan, EventQueue& queue,
           RandomStream& random, Hooks hooks);

  /// Which of a shard's two leads it, as the newest view has it.
  [[nodiscard]] std::uint32_t leader_of(std::uint32_t shard) const;
  [[nodiscard]] PsReplica& leader(std::uint32_t shard) { return at(shard, leader_of(shard)); }
  [[nodiscard]] PsReplica& at(std::uint32_t shard, std::uint32_t place) {
    return *shards_[shard][place];
  }
  /// The server that one of a shard's two is on.
  [[nodiscard]] std::uint32_t host_of(std::uint32_t shard, std::uint32_t place) const;
  /// A shard is nowhere any more.
  [[nodiscard]] bool is_torn() const { return placement_.is_torn(); }
  [[nodiscard]] std::uint32_t takeovers() const { return takeovers_; }
  /// What the leaders have come to, once at the end: their logs are moved away.
  void report(PsResult& result);

  /// Every server learns who is a worker, and who leads what, in its own time.
  void publish(const std::set<MemberId>& roster);
  /// The same, when meet_all() is called for each server.
  void meet_later(const std::set<MemberId>& roster) { roster_ = roster; }
  /// The shards of a server, now.
  void meet_all(std::uint32_t server);
  /// One of them, now.
  void meet(std::uint32_t shard, std::uint32_t place);
  /// A leader is told something: its follower is told the same, then what follows may leave.
  /// Returns what became of a push.
  std::optional<parameter_server::PushFate> tell(std::uint32_t shard, std::uint32_t place,
                                                 const parameter_server::ShardEvent& event,
                                                 std::uint64_t gradient);
  /// A worker's message has arrived. Of one that the server has not heard of yet, or before it
  /// leads, nothing is read; of one that is gone, never.
  void take(MemberId worker, std::uint32_t shard, std::uint32_t place,
            const std::function<void()>& message);
  /// A server dies, with everything on it; or it is only taken for dead and goes on. Of what it has
  /// sent to a follower the last may be lost. False if there is no such server any more.
  bool lose(std::uint32_t server, bool dies);
  /// The next view is without it.
  void declare_lost(std::uint32_t server) { placement_.lose(server); }

 private:
  using Pair = std::vector<std::unique_ptr<PsReplica>>;  // the one at home, then its follower

  [[nodiscard]] Duration some_time();
  void forward(std::uint32_t shard, std::uint64_t entry, const parameter_server::ShardEvent& event,
               std::uint64_t gradient);
  void follow(std::uint32_t shard, std::uint64_t entry, const parameter_server::ShardEvent& event,
              std::uint64_t gradient);
  void release(PsReplica& replica);
  [[nodiscard]] bool forgets(const PsReplica& replica) const;

  const PsOptions& options_;
  EventQueue& queue_;
  RandomStream& random_;
  const Hooks hooks_;
  parameter_server::Placement placement_;  // of the newest view
  std::vector<Pair> shards_;
  std::map<std::uint32_t, std::uint64_t> cut_after_;  // entries of a shard whose home is dead
  std::set<MemberId> roster_;
  std::uint32_t takeovers_ = 0;
};

}  // namespace mayfly::sim
