#pragma once

// The role of each member in a job with parameter servers, derived from the job's views: whether it
// computes, which server it is or carries, and which shards it leads and follows. For status and
// events.jsonl. Pure; one thread at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/core/view.hpp"
#include "engine/config/config.hpp"
#include "engine/server_roles/ps_servers.hpp"

namespace mayfly::engine {

/// A member's role in the newest view.
struct PsRole {
  bool computes = false;
  std::optional<std::uint32_t> server{};  ///< the server that the member is or carries
  std::vector<std::uint32_t> leads{};     ///< shards
  std::vector<std::uint32_t> follows{};   ///< shards
  friend bool operator==(const PsRole&, const PsRole&) = default;
};
/// "worker", "server" or "worker+server"; "none" for a server that is not one of the job's.
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

/// The changes of the servers in a view.
struct PsServersNews {
  std::vector<std::uint32_t> lost{};    ///< lost servers; empty in the job's first view
  std::vector<PsServerPart> servers{};  ///< the servers that the job has now, by index
  std::string detail{};                 ///< the same as a text
};

class PsRoles {
 public:
  explicit PsRoles(const JobConfig& config);

  /// To be called with new views; some may be left out. Returns nothing if the servers and their
  /// shards have not changed, or if some servers were missing in the first view (the workers end
  /// such a job).
  [[nodiscard]] std::optional<PsServersNews> follow(const elastic::View& view);
  /// Nothing if the member is not in the newest view.
  [[nodiscard]] std::optional<PsRole> role_of(MemberId member) const;
  /// The number of servers that the job has or, before its first view, waits for. Lost servers are
  /// not replaced.
  [[nodiscard]] std::uint32_t servers_left() const;

 private:
  [[nodiscard]] std::vector<PsServerPart> parts() const;
  [[nodiscard]] PsRole part_of_server(std::uint32_t index) const;
  [[nodiscard]] std::string account_of_loss(std::uint32_t index,
                                            const parameter_server::Placement& before) const;

  const std::uint32_t count_;
  const std::uint32_t shards_;  // of each
  PsServers servers_;
  bool are_known_ = false;             // all servers were in the first view
  bool are_missing_ = false;           // some servers were missing in the first view
  std::map<MemberId, bool> computes_;  // the members of the newest view
};

}  // namespace mayfly::engine
