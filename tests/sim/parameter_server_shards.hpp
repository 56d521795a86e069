#pragma once

// The servers of a simulated job: the leader and the follower of each shard, the messages between
// them, and the loss of servers. For parameter_server_world.cpp.

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
  /// The messages of leaders to workers: leases from the first shard, and answers to the questions
  /// of workers, with the version and the model at that moment.
  struct Hooks {
    std::function<void(const parameter_server::Grants&)> deliver;
    std::function<void(std::uint32_t shard, const std::map<MemberId, std::uint64_t>& questions,
                       std::uint64_t version, std::uint64_t model)>
        answer;
    std::function<void(std::uint32_t shard)> took_over;  ///< a follower has become the leader
  };

  /// All arguments outlive this object.
  PsShards(const PsOptions& options, const parameter_server::SyncPlan& plan, EventQueue& queue,
           RandomStream& random, Hooks hooks);

  /// The place (0 or 1) of the shard's leader in the newest view.
  [[nodiscard]] std::uint32_t leader_of(std::uint32_t shard) const;
  [[nodiscard]] PsReplica& leader(std::uint32_t shard) { return at(shard, leader_of(shard)); }
  [[nodiscard]] PsReplica& at(std::uint32_t shard, std::uint32_t place) {
    return *shards_[shard][place];
  }
  /// The server of one of a shard's two replicas.
  [[nodiscard]] std::uint32_t host_of(std::uint32_t shard, std::uint32_t place) const;
  /// Whether both replicas of some shard are lost.
  [[nodiscard]] bool is_torn() const { return placement_.is_torn(); }
  [[nodiscard]] std::uint32_t takeovers() const { return takeovers_; }
  /// Moves the leaders' logs into the result. Called once, at the end.
  void report(PsResult& result);

  /// Announces the workers and the leaders of a new view to each server, after separate delays.
  void publish(const std::set<MemberId>& roster);
  /// Keeps the workers of a new view; the caller announces it with meet_all() for each server.
  void meet_later(const std::set<MemberId>& roster) { roster_ = roster; }
  /// Announces the view to all shards of a server now.
  void meet_all(std::uint32_t server);
  /// Announces the view to one replica now.
  void meet(std::uint32_t shard, std::uint32_t place);
  /// Passes an event to a leader, which forwards it to its follower. The leader's messages are held
  /// back until the follower has the event. Returns the fate of a push.
  std::optional<parameter_server::PushFate> tell(std::uint32_t shard, std::uint32_t place,
                                                 const parameter_server::ShardEvent& event,
                                                 std::uint64_t gradient);
  /// A worker's message has arrived. The server reads it later if it does not know the worker yet
  /// or is not the leader yet, and never if the worker has been lost.
  void take(MemberId worker, std::uint32_t shard, std::uint32_t place,
            const std::function<void()>& message);
  /// A server dies with all its replicas, or (`dies` false) is only declared lost and goes on. The
  /// last entries that it has sent to followers may be lost. False if the server was lost before.
  bool lose(std::uint32_t server, bool dies);
  /// Excludes the server from the next view.
  void declare_lost(std::uint32_t server) { placement_.lose(server); }

 private:
  using Pair = std::vector<std::unique_ptr<PsReplica>>;  // the home replica, then its follower

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
  parameter_server::Placement placement_;  // in the newest view
  std::vector<Pair> shards_;
  std::map<std::uint32_t, std::uint64_t> cut_after_;  // by shard: last entry of a dead home replica
  std::set<MemberId> roster_;
  std::uint32_t takeovers_ = 0;
};

}  // namespace mayfly::sim
