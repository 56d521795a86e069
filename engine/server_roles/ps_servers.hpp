#pragma once

// The parameter servers of a job, derived from the views that a process has received: which server
// leads and which one follows each shard. In a view the address of a member with a server contains
// the addresses of its shards. Pure; one thread at a time.

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
  std::vector<std::string> followers;  ///< followers of the previous server's shards; may be empty
  bool computes = false;               ///< it is a worker, too (ps colocated)
  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};
/// The address of a member with a server.
[[nodiscard]] std::string to_text(const ServerAddress& address);
/// Nothing if the member has no server. kInvalidInput if an address of a server is malformed.
[[nodiscard]] Result<std::optional<ServerAddress>> parse_server_address(const std::string& text);
/// Whether the member with this address computes.
[[nodiscard]] bool is_worker(const std::string& address);
/// Whether the member with this address is a server and does not compute. For members of any job.
[[nodiscard]] bool is_server_only(const std::string& address);

/// Whether the member with this address is or carries a server. For members of any job.
[[nodiscard]] bool has_server(const std::string& address);

class PsServers {
 public:
  explicit PsServers(const JobConfig& config);

  /// To be called with new views; some may be left out. Errors for the first one: kInvalidInput if
  /// an address is malformed, or if the job begins and two servers have the same index or one has
  /// an index that the job does not have; kNotFound if no server has a shard. A server that is
  /// missing in a later view is lost permanently, even if another server has its index or its
  /// member has returned without it.
  [[nodiscard]] Result<void> follow(const elastic::View& view);

  [[nodiscard]] const parameter_server::Placement& placement() const { return placement_; }
  /// The address to which workers connect for this shard. Nothing if the shard is lost.
  [[nodiscard]] std::optional<std::string> leader_address(std::uint32_t shard) const;
  /// The address of the shard's follower. Empty if it has none.
  [[nodiscard]] std::string follower_address(std::uint32_t shard) const;
  /// The member that follows the shard; 0 = none.
  [[nodiscard]] MemberId follower_member(std::uint32_t shard) const;
  /// Whether the member is or was the job's server with this index.
  [[nodiscard]] bool is_server(std::uint32_t index, MemberId member) const {
    return servers_[index] && servers_[index]->id == member;
  }
  /// The server that leads this shard. ENSUREs that one does.
  [[nodiscard]] MemberId leader_member(std::uint32_t shard) const;
  /// Decides which member has to leave if a worker cannot reach the leader of a shard although both
  /// reach the coordinator. Returns the leader's member, or nothing if the worker has to leave:
  /// that is so if the view has other workers, which may reach the leader, or if the shard would be
  /// lost.
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

/// Whether a server, which has `committed` steps, joined a running job: its parameters are not
/// those that the job has trained. Not detected for a server that joins after the coordinator was
/// restarted.
[[nodiscard]] bool is_late_server(const elastic::View& first_view, Step committed);

}  // namespace mayfly::engine
