#pragma once

// The parameter servers of a job as one process has seen them in its views: where each shard is led
// and followed. The address of a server's member in a view names its shards. Pure; one thread at a
// time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "collectives/parameter_server/core/replicas.hpp"
#include "elastic/core/view.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

inline constexpr const char* kPsWorkerAddress = "ps-worker";
struct ServerAddress {
  std::uint32_t index = 0;
  std::vector<std::string> shards;
  std::vector<std::string> followers;  ///< of the shards of the server before; may be none
  bool computes = false;               ///< it is a worker, too (ps colocated)
  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};
/// Where the shards of a server are, as a member's address; and that of a member that is a worker.
[[nodiscard]] std::string to_text(const ServerAddress& address);
/// Nothing if the member is no server. kInvalidInput if it says so and cannot be read.
[[nodiscard]] Result<std::optional<ServerAddress>> parse_server_address(const std::string& text);
/// The member with this address computes.
[[nodiscard]] bool is_worker(const std::string& address);
/// The member with this address is a server and does not compute. Of any job.
[[nodiscard]] bool is_server_only(const std::string& address);

/// The member with this address is or carries a server. Of any job.
[[nodiscard]] bool has_server(const std::string& address);

class PsServers {
 public:
  explicit PsServers(const JobConfig& config);

  /// Call with every view; some may be left out. In the first one: kInvalidInput if the job begins
  /// and two servers have one index or one has none of the job's, or if an address cannot be read;
  /// kNotFound if a shard is nowhere. A server that is gone later, or another one under its index,
  /// is lost for good; so is one whose member has come back without it.
  [[nodiscard]] Result<void> follow(const elastic::View& view);

  [[nodiscard]] const parameter_server::Placement& placement() const { return placement_; }
  /// Where workers connect for this shard. Nothing: it is lost.
  [[nodiscard]] std::optional<std::string> leader_address(std::uint32_t shard) const;
  /// Empty: it has no follower.
  [[nodiscard]] std::string follower_address(std::uint32_t shard) const;
  /// The member that follows it; 0: none.
  [[nodiscard]] MemberId follower_member(std::uint32_t shard) const;
  /// The member is the server with this index, for the job, or was.
  [[nodiscard]] bool is_server(std::uint32_t index, MemberId member) const {
    return servers_[index] && servers_[index]->id == member;
  }
  /// The server that leads this shard. ENSUREs that one does.
  [[nodiscard]] MemberId leader_member(std::uint32_t shard) const;
  /// A worker cannot reach the leader of a shard although both reach the coordinator. The server
  /// that has to go for that; nothing: the worker. It is the worker as long as others are in the
  /// view, who may do better, or if updates would be lost with the server.
  [[nodiscard]] std::optional<MemberId> server_to_give_up(const elastic::View& view,
                                                          std::uint32_t shard) const;

 private:
  struct Server {
    MemberId id{};
    ServerAddress address;
    std::string text;  // of the address
  };

  Result<void> meet(const elastic::View& view);
  [[nodiscard]] const std::string& second_address(std::uint32_t shard) const;

  const std::uint32_t count_;
  const std::uint32_t shards_;  // of each
  const bool has_followers_;
  const bool colocated_;
  parameter_server::Placement placement_;
  std::vector<std::optional<Server>> servers_;  // by index, as in the first view
  bool has_met_ = false;
};

/// Members of the view that compute.
[[nodiscard]] std::size_t count_workers(const elastic::View& view);

/// This server came when the job was under way: what it holds is not what the job has trained. Not
/// known of one that comes after the coordinator was started again.
[[nodiscard]] bool is_late_server(const elastic::View& first_view, Step committed);

}  // namespace mayfly::engine
