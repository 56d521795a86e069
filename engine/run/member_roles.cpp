#include "engine/run/member_roles.hpp"

#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {

MemberRoles::MemberRoles(const JobConfig& config) {
  if (uses_parameter_servers(config)) {
    roles_.emplace(config);
  }
}

std::optional<PsServersNews> MemberRoles::follow(const elastic::View& view) {
  const std::lock_guard lock(mutex_);
  return roles_ ? roles_->follow(view) : std::nullopt;
}

std::optional<PsRole> MemberRoles::role_of(MemberId member) const {
  const std::lock_guard lock(mutex_);
  return roles_ ? roles_->role_of(member) : std::nullopt;
}

bool MemberRoles::is_server(MemberId member) const {
  const std::optional<PsRole> role = role_of(member);
  return role && role->server;
}

std::uint32_t MemberRoles::servers_left() const {
  const std::lock_guard lock(mutex_);
  return roles_ ? roles_->servers_left() : 0;
}

}  // namespace mayfly::engine
