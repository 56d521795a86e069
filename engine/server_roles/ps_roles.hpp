#pragma once

// Which part each member has in a job with parameter servers, according to its views: which ones
// compute, are or carry which server, and lead and follow which shard; for status and events.jsonl.
// Pure; one thread at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/core/view.hpp"
#include "engine/config/config.hpp"
#include "engine/server_roles/ps_servers.hpp"

namespace mayfly::engine {

/// A member's part in the newest view.
struct PsRole {
  bool computes = false;
  std::optional<std::uint32_t> server{};  ///< that it is, or that it carries
  std::vector<std::uint32_t> leads{};     ///< shards
  std::vector<std::uint32_t> follows{};   ///< shards
  friend bool operator==(const PsRole&, const PsRole&) = default;
};
/// "worker", "server" or "worker+server"; "none" of a server that the job does not have.
[[nodiscard]] std::string name_of(const PsRole& role);

/// One server that the job has.
struct PsServerPart {
  std::uint32_t server = 0;
  MemberId member{};
  PsRole role;

  /// For events.jsonl; see engine/run/records.hpp.
  static void fields(auto& io, auto& r) {
    io("server", r.server);
    io("member", r.member);
    io("computes", r.role.computes);
    io("leads", r.role.leads);
    io("follows", r.role.follows);
  }
};

/// What a view has changed about the servers.
struct PsServersNews {
  std::vector<std::uint32_t> lost{};    ///< servers; none: all are met for the first time
  std::vector<PsServerPart> servers{};  ///< that the job has now, by index
  std::string detail{};                 ///< the same in words
};

class PsRoles {
 public:
  explicit PsRoles(const JobConfig& config);

  /// Call with every view; some may be left out. Nothing: the servers and their shards are as they
  /// were, or not all of them can be found (the workers end such a job).
  [[nodiscard]] std::optional<PsServersNews> follow(const elastic::View& view);
  /// Nothing: it is not in the newest view.
  [[nodiscard]] std::optional<PsRole> role_of(MemberId member) const;
  /// How many servers the job has or waits for: those that were lost do not come back.
  [[nodiscard]] std::uint32_t servers_left() const;

 private:
  [[nodiscard]] std::vector<PsServerPart> parts() const;
  [[nodiscard]] PsRole part_of_server(std::uint32_t index) const;
  [[nodiscard]] std::string account_of_loss(std::uint32_t index,
                                            const parameter_server::Placement& before) const;

  const std::uint32_t count_;
  const std::uint32_t shards_;  // of each
  PsServers servers_;
  bool are_known_ = false;             // the servers
  bool are_missing_ = false;           // some of them, in the first view
  std::map<MemberId, bool> computes_;  // of the newest view
};

}  // namespace mayfly::engine
