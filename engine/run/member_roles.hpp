#pragma once

// Which part each member has in the newest view of a running job; engine/server_roles/ps_roles
// decides it.

#include <cstdint>
#include <mutex>
#include <optional>

#include "engine/config/config.hpp"
#include "engine/server_roles/ps_roles.hpp"

namespace mayfly::engine {

/// Any thread. A job without parameter servers has no roles.
class MemberRoles {
 public:
  explicit MemberRoles(const JobConfig& config);

  /// Call with every view. What it has changed about the servers; see PsRoles::follow().
  [[nodiscard]] std::optional<PsServersNews> follow(const elastic::View& view);
  /// Nothing: the member has no part yet, or the job has no parameter servers.
  [[nodiscard]] std::optional<PsRole> role_of(MemberId member) const;
  /// The member is, or carries, a parameter server that the job has.
  [[nodiscard]] bool is_server(MemberId member) const;
  /// How many parameter servers the job has or waits for; 0 in all-reduce.
  [[nodiscard]] std::uint32_t servers_left() const;

 private:
  mutable std::mutex mutex_;
  std::optional<PsRoles> roles_;  // of a job with parameter servers
};

}  // namespace mayfly::engine
