// The part of ReplacementPolicy that follows the workers of the job.

#include <algorithm>

#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks {

void ReplacementPolicy::on(Instant, const policy_event::Joined& event) {
  members_[event.member] = {event.server, false, false};
  const auto found = servers_.find(event.server);
  if (event.server.empty() || found == servers_.end()) {
    return;
  }
  Server& server = found->second;
  if (server.stage != Stage::kAwaited && server.stage != Stage::kSilent) {
    return;  // on its way out
  }
  server.stage = Stage::kWorking;
  server.deadline.reset();
  server.member = event.member;
  if (server.offer) {
    book_.worked(*server.offer);
  }
  tell("server_joined", describe(server), event.server);
}

void ReplacementPolicy::on(Instant now, const policy_event::Leaving& event) {
  const auto member = members_.find(event.member);
  if (member == members_.end() || member->second.leaves) {
    return;
  }
  member->second.leaves = true;
  if (!first_loss_) {
    first_loss_ = now;
  }
  const auto found = servers_.find(member->second.server);
  if (found != servers_.end() && found->second.stage == Stage::kWorking) {
    found->second.stage = Stage::kLeaving;
    found->second.deadline = now + options_.leave_timeout;
  }
}

void ReplacementPolicy::on(Instant now, const policy_event::Gone& event) {
  const auto member = members_.find(event.member);
  if (member == members_.end()) {
    return;
  }
  const MemberInfo info = member->second;
  members_.erase(member);
  if (!info.leaves && !first_loss_) {
    first_loss_ = now;
  }
  const auto found = servers_.find(info.server);
  if (found != servers_.end() && found->second.member == event.member) {
    worker_lost(now, info.server, found->second);
  }
}

void ReplacementPolicy::worker_lost(Instant now, const std::string& id, Server& server) {
  server.member.reset();
  list_due_ = std::min(list_due_, now);
  if (server.stage == Stage::kLeaving) {
    release(now, id);
  } else if (server.stage == Stage::kWorking) {
    server.stage = Stage::kSilent;
    server.deadline = now + options_.rejoin_patience;
    if (server.offer) {
      ++losses_[*server.offer];
    }
    tell("server_lost", describe(server) + " has lost its worker", id);
  }
}

void ReplacementPolicy::on(Instant, const policy_event::Measured& event) {
  const auto member = members_.find(event.member);
  if (member == members_.end()) {
    return;
  }
  const auto found = servers_.find(member->second.server);
  if (found != servers_.end() && found->second.offer) {
    book_.measured(*found->second.offer, event.speed);
  }
}

}  // namespace mayfly::cloud_hooks
