// What the recorder knows of a job's parameter servers.

#include "engine/config/ps_settings.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_recorder.hpp"

namespace mayfly::engine {

std::optional<PsRoles> RunRecorder::roles_in(const JobConfig& config) {
  return uses_parameter_servers(config) ? std::optional<PsRoles>(config) : std::nullopt;
}

/// Who is or carries which server: at the beginning, and whenever one is lost.
void RunRecorder::record(const PsServersNews& news, ViewId view) {
  std::vector<std::string> lost;
  for (const std::uint32_t server : news.lost) {
    lost.push_back(std::to_string(server));
  }
  directory_.event(lost.empty() ? "ps_servers" : "ps_server_lost",
                   {{"view", json_number(value(view))},
                    {"lost", json_array(lost)},
                    {"servers", to_json(news.servers)},
                    {"detail", json_string(news.detail)}});
}

std::string RunRecorder::role_fields(MemberId member) const {
  const std::lock_guard lock(mutex_);
  return roles_ ? status_fields(roles_->role_of(member)) : std::string();
}

bool RunRecorder::is_server(MemberId member) const {
  const std::lock_guard lock(mutex_);
  const std::optional<PsRole> role = roles_ ? roles_->role_of(member) : std::nullopt;
  return role && role->server;
}

std::uint32_t RunRecorder::servers_left() const {
  const std::lock_guard lock(mutex_);
  return roles_ ? roles_->servers_left() : 0;
}

}  // namespace mayfly::engine
