#pragma once

// The role of each member in the newest view of a running job; engine/server_roles/ps_roles assigns
// the roles.

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

  /// To be called with every view. Returns the changes of the servers; see PsRoles::follow().
  [[nodiscard]] std::optional<PsServersNews> follow(const elastic::View& view);
  /// Nothing if the member has no role yet, or the job has no parameter servers.
  [[nodiscard]] std::optional<PsRole> role_of(MemberId member) const;
  /// Whether the member is, or carries, a parameter server of the job.
  [[nodiscard]] bool is_server(MemberId member) const;
  /// How many parameter servers the job has or waits for; 0 in all-reduce.
  [[nodiscard]] std::uint32_t servers_left() const;

 private:
  mutable std::mutex mutex_;
  std::optional<PsRoles> roles_;  // of a job with parameter servers
};

}  // namespace mayfly::engine
