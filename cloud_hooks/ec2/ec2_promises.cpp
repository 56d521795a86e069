#include "cloud_hooks/ec2/ec2_promises.hpp"

namespace mayfly::cloud_hooks {

void Ec2Promises::add(Instant now, const ServerStatus& server) {
  const std::lock_guard lock(mutex_);
  std::erase_if(promises_,
                [&](const auto& entry) { return now - entry.second.made >= kUnknownMax; });
  promises_.insert_or_assign(server.id, Promise{now, server});
}

void Ec2Promises::known(const std::string& id) {
  const std::lock_guard lock(mutex_);
  promises_.erase(id);
}

std::optional<ServerStatus> Ec2Promises::find(Instant now, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = promises_.find(id);
  return found != promises_.end() && now - found->second.made < kUnknownMax
             ? std::optional(found->second.server)
             : std::nullopt;
}

std::vector<ServerStatus> Ec2Promises::all(Instant now) const {
  const std::lock_guard lock(mutex_);
  std::vector<ServerStatus> servers;
  for (const auto& [id, promise] : promises_) {
    if (now - promise.made < kUnknownMax) {
      servers.push_back(promise.server);
    }
  }
  return servers;
}

}  // namespace mayfly::cloud_hooks
