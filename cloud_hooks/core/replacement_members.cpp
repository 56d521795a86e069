// The part of ReplacementPolicy that follows the workers of the job.

#include <algorithm>

#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks {

void ReplacementPolicy::on(Instant now, const policy_event::Joined& event) {
  MemberInfo& member = members_[event.member];
  member = {event.server, now};
  if (event.server.empty()) {
    presume_home(member);
    return;
  }
  const auto found = servers_.find(event.server);
  if (found == servers_.end()) {
    return;
  }
  Server& server = found->second;
  if (server.stage != Stage::kAwaited && server.stage != Stage::kSilent &&
      server.stage != Stage::kUnnamed) {
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

void ReplacementPolicy::on(Instant, const policy_event::Irreplaceable& event) {
  if (const auto member = members_.find(event.member); member != members_.end()) {
    member->second.is_irreplaceable = true;
  }
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
  if (info.server.empty()) {
    unnamed_lost(now);
    return;
  }
  const auto found = servers_.find(info.server);
  if (found != servers_.end() && found->second.member == event.member) {
    worker_lost(now, info.server, found->second);
  }
}

void ReplacementPolicy::worker_lost(Instant now, const std::string& id, Server& server) {
  server.member.reset();
  list_due_ = std::min(list_due_, now);
  if (server.stage == Stage::kLeaving || (server.stage == Stage::kWorking && is_closing_)) {
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
  member->second.is_measured = true;
  const auto found = servers_.find(member->second.server);
  if (found != servers_.end() && found->second.offer) {
    book_.measured(*found->second.offer, event.speed);
  }
}

// --- Workers that did not name their server ---
//
// Each of them is counted together with one server that waits for its worker. Otherwise worker and
// server would count twice, the job would have too many, and the server of the worker would be
// released. It is unknown which server it really is, so none of these servers is released while it
// may be the one.

/// The server that was granted first, of those without a worker.
void ReplacementPolicy::presume_home(MemberInfo& member) {
  Server* home = nullptr;
  for (auto& [id, server] : servers_) {
    const bool waits = server.stage == Stage::kAwaited && !is_for_evaluator(server);
    if (waits && (home == nullptr || server.order < home->order)) {
      home = &server;
    }
  }
  if (home != nullptr) {
    house(member, *home);
  }
}

/// A worker may join before the answer to the request for its server arrives.
void ReplacementPolicy::presume_worker(Server& server) {
  for (auto& [id, member] : members_) {
    if (member.server.empty() && !member.is_housed && member.joined > server.asked) {
      house(member, server);
      return;
    }
  }
}

void ReplacementPolicy::house(MemberInfo& member, Server& server) {
  member.is_housed = true;
  server.stage = Stage::kUnnamed;
  server.deadline.reset();
  if (!told_unnamed_) {
    told_unnamed_ = true;
    tell("worker_unnamed",
         "a worker does not say on which server it runs: the startup script should set "
         "MAYFLY_SERVER. Servers of such workers are kept until the last of them is gone");
  }
}

void ReplacementPolicy::unnamed_lost(Instant now) {
  list_due_ = std::min(list_due_, now);
  if (has_unnamed()) {
    return;
  }
  for (auto& [id, server] : servers_) {
    if (server.stage == Stage::kUnnamed) {
      server.deadline = now + options_.rejoin_patience;
    }
  }
}

bool ReplacementPolicy::has_unnamed() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& entry) { return entry.second.server.empty(); });
}

/// A server may end before its worker has joined, while another server's unnamed worker was counted
/// with it. That worker runs on a server that still waits for its worker: the two are now counted
/// together.
std::uint32_t ReplacementPolicy::counted_twice() const {
  std::uint32_t housed = 0;
  for (const auto& [id, member] : members_) {
    housed += member.is_housed && !member.leaves && !member.server_is_gone ? 1 : 0;
  }
  std::uint32_t homes = 0;
  std::uint32_t awaited = 0;
  for (const auto& [id, server] : servers_) {
    homes += server.stage == Stage::kUnnamed ? 1 : 0;
    awaited += server.stage == Stage::kAwaited && !is_for_evaluator(server) ? 1 : 0;
  }
  return housed > homes ? std::min(housed - homes, awaited) : 0;
}

bool ReplacementPolicy::may_be_a_home(const Server& server) const {
  if (server.stage == Stage::kUnnamed) {
    return has_unnamed();
  }
  return server.stage == Stage::kAwaited && server.runs &&
         std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
           return entry.second.server.empty() && entry.second.joined >= server.asked;
         });
}

}  // namespace mayfly::cloud_hooks
