#include "engine/cloud/server_target.hpp"

#include <algorithm>

#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {

ServerTarget::ServerTarget(const JobConfig& config, std::uint32_t workers)
    : servers_at_first_(dedicated_servers(config)),
      evaluators_(config.evaluator_offers.empty() ? config.evaluators : 0),
      workers_(workers),
      servers_(servers_at_first_) {}

void ServerTarget::set_workers(std::uint32_t workers, std::optional<std::uint32_t> after) {
  const std::lock_guard lock(mutex_);
  workers_ = workers;
  workers_after_ = after;
}

void ServerTarget::saw_parameter_server(MemberId member) {
  const std::lock_guard lock(mutex_);
  servers_seen_.insert(member);
}

bool ServerTarget::follow_losses(const std::vector<elastic::MemberStatus>& members,
                                 std::uint32_t left) {
  const auto is_gone = [&members](MemberId server) {
    return std::ranges::find(members, server, &elastic::MemberStatus::id) == members.end();
  };
  const std::lock_guard lock(mutex_);
  const auto gone = static_cast<std::uint32_t>(std::ranges::count_if(servers_seen_, is_gone));
  const std::uint32_t before = servers_;
  servers_ = std::min({servers_, left, servers_at_first_ - std::min(gone, servers_at_first_)});
  return servers_ != before;
}

std::uint32_t ServerTarget::workers() const {
  const std::lock_guard lock(mutex_);
  return workers_;
}

std::uint32_t ServerTarget::lasting_workers() const {
  const std::lock_guard lock(mutex_);
  return workers_after_.value_or(workers_);
}

std::uint32_t ServerTarget::for_training() const {
  const std::lock_guard lock(mutex_);
  return workers_ + servers_;
}

std::uint32_t ServerTarget::all() const {
  return for_training() + evaluators_;
}

}  // namespace mayfly::engine
