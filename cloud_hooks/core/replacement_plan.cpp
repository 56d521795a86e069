// The part of ReplacementPolicy that follows the workers of the job, and the actions that follow
// from its state after every event.

#include <algorithm>

#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks {
namespace {

/// A server that still runs so long after its release was accepted is released once more.
constexpr Duration kReleaseAgainAfter = seconds(60);
constexpr Duration kShortestWait = milliseconds(1);

}  // namespace

void ReplacementPolicy::on(Instant now, const policy_event::Joined& event) {
  MemberInfo& member = members_[event.member];
  member = {event.server, now};
  if (event.server.empty()) {
    presume_server(member);
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
    catalog_.worked(*server.offer);
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
    server.silent_since = now;
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
  member->second.speed = event.speed;
  const auto found = servers_.find(member->second.server);
  if (found != servers_.end() && found->second.offer) {
    catalog_.measured(*found->second.offer, event.speed);
  }
}

// --- Workers that did not name their server ---
//
// Each of them is counted together with one server that waits for its worker. Otherwise worker and
// server would count twice, the job would have too many, and the server of the worker would be
// released. It is unknown which server it really is, so none of these servers is released while it
// may be the one.

/// The server that was granted first, of those without a worker.
void ReplacementPolicy::presume_server(MemberInfo& member) {
  Server* oldest = nullptr;
  for (auto& [id, server] : servers_) {
    const bool waits = server.stage == Stage::kAwaited && !is_for_evaluator(server);
    if (waits && (oldest == nullptr || server.order < oldest->order)) {
      oldest = &server;
    }
  }
  if (oldest != nullptr) {
    count_together(member, *oldest);
  }
}

/// A worker may join before the answer to the request for its server arrives.
void ReplacementPolicy::presume_worker(Server& server) {
  for (auto& [id, member] : members_) {
    if (member.server.empty() && !member.has_presumed_server && member.joined > server.asked) {
      count_together(member, server);
      return;
    }
  }
}

void ReplacementPolicy::count_together(MemberInfo& member, Server& server) {
  member.has_presumed_server = true;
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
      server.silent_since = now;
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
  std::uint32_t presumed = 0;
  for (const auto& [id, member] : members_) {
    presumed += member.has_presumed_server && !member.leaves && !member.server_is_gone ? 1 : 0;
  }
  std::uint32_t servers_of_unnamed = 0;
  std::uint32_t awaited = 0;
  for (const auto& [id, server] : servers_) {
    servers_of_unnamed += server.stage == Stage::kUnnamed ? 1 : 0;
    awaited += server.stage == Stage::kAwaited && !is_for_evaluator(server) ? 1 : 0;
  }
  return presumed > servers_of_unnamed ? std::min(presumed - servers_of_unnamed, awaited) : 0;
}

/// Its worker was lost, and may come back.
bool ReplacementPolicy::is_silent(const Server& server) const {
  return server.stage == Stage::kSilent || (server.stage == Stage::kUnnamed && !has_unnamed());
}

/// The provider has not shown yet whether the server of this lost worker still exists.
bool ReplacementPolicy::is_loss_unlisted(const Server& server) const {
  return is_silent(server) && server.silent_since > server.looked_for;
}

bool ReplacementPolicy::may_have_unnamed_worker(const Server& server) const {
  if (server.stage == Stage::kUnnamed) {
    return has_unnamed();
  }
  return server.stage == Stage::kAwaited && server.runs &&
         std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
           return entry.second.server.empty() && entry.second.joined >= server.asked;
         });
}

void ReplacementPolicy::plan(Instant now) {
  watch_budget(now);
  watch_stages(now);
  if (ended_ || budget_is_over_) {
    release_all(now);
  } else if (is_closing_) {
    release_unused(now);
  }
  repeat_requests(now);
  watch_exchange(now);
  give_up_surplus(now);
  keep_hourly_budget(now);
  ask_for_missing(now);
  request_list(now);
}

bool ReplacementPolicy::is_for_evaluator(const Server& server) const {
  return server.offer && catalog_.terms(*server.offer).for_evaluator;
}

std::uint32_t ReplacementPolicy::staying() const {
  std::uint32_t count = 0;
  for (const auto& [id, server] : servers_) {
    count += server.stays() && !is_exchanged(id) && !is_for_evaluator(server) ? 1 : 0;
  }
  for (const auto& [id, member] : members_) {
    const bool stays = !member.leaves && !member.server_is_gone;
    count += stays && !servers_.contains(member.server) ? 1 : 0;  // the others are counted above
  }
  return count - counted_twice();
}

std::uint32_t ReplacementPolicy::coming() const {
  std::uint32_t count = 0;
  for (const auto& [id, pending] : pending_) {
    count +=
        pending.unsettled || catalog_.terms(pending.offer).for_evaluator ? 0 : pending.missing();
  }
  return count;
}

bool ReplacementPolicy::no_worker_comes() const {
  const bool is_asked_for = std::ranges::any_of(pending_, [this](const auto& entry) {
    const Pending& pending = entry.second;  // may be open although all of its servers are known
    return pending.missing() > 0 && !catalog_.terms(pending.offer).for_evaluator;
  });
  const bool may_be_brought = std::ranges::any_of(servers_, [this](const auto& entry) {
    const Server& server = entry.second;
    return (server.is_used() || server.stage == Stage::kSilent) && !is_for_evaluator(server);
  });
  return catalog_.no_worker_offer_left() && !is_asked_for && !may_be_brought;
}

/// Servers for evaluators that are neither there nor requested.
std::uint32_t ReplacementPolicy::evaluators_missing() const {
  std::uint32_t have = 0;
  for (const auto& [id, server] : servers_) {
    have += server.stays() && is_for_evaluator(server) ? 1 : 0;
  }
  for (const auto& [id, pending] : pending_) {
    have +=
        !pending.unsettled && catalog_.terms(pending.offer).for_evaluator ? pending.missing() : 0;
  }
  return options_.evaluators - std::min(options_.evaluators, have);
}

/// Servers of the offer that are to stay or may still appear.
std::uint32_t ReplacementPolicy::present(std::size_t offer) const {
  std::uint32_t count = 0;
  for (const auto& [id, server] : servers_) {
    count += server.is_used() && !is_exchanged(id) && server.offer == offer ? 1 : 0;
  }
  for (const auto& [id, pending] : pending_) {
    count += !pending.unsettled && pending.offer == offer ? pending.missing() : 0;
  }
  return count;
}

std::uint32_t ReplacementPolicy::on_demand_present() const {
  std::uint32_t count = 0;
  for (std::size_t offer = 0; offer < catalog_.size(); ++offer) {
    const OfferTerms& terms = catalog_.terms(offer);
    const bool counts = terms.offer.market == Market::kOnDemand && !terms.for_evaluator;
    count += counts ? present(offer) : 0;
  }
  return count;
}

// --- What exists ---

void ReplacementPolicy::watch_stages(Instant now) {
  for (auto& [id, server] : servers_) {
    if (server.deadline && *server.deadline <= now) {
      stage_is_over(now, id, server);
    }
    if (server.is_used() && server.ends && *server.ends - options_.leave_timeout <= now) {
      server.ends.reset();
      tell("server_given_up", describe(server) + " is at the end of its lifetime", id);
      if (!first_loss_) {
        first_loss_ = now;
      }
      let_go(now, id);
    }
  }
}

void ReplacementPolicy::stage_is_over(Instant now, const std::string& id, Server& server) {
  if (may_have_unnamed_worker(server)) {
    server.stage = Stage::kUnnamed;
    server.deadline.reset();
    return;
  }
  if (is_loss_unlisted(server)) {
    server.deadline.reset();  // if all are silent, the provider too, it is we who are cut off
    return;
  }
  switch (server.stage) {
    case Stage::kAwaited:
      tell("server_given_up",
           describe(server) +
               (server.runs ? " brought no worker into the job in time" : " did not start in time"),
           id);
      never_joined(now, id, server);
      break;
    case Stage::kSilent:
    case Stage::kUnnamed:
      tell("server_given_up", describe(server) + ": its worker did not come back", id);
      break;
    case Stage::kLeaving:
    case Stage::kReleasing:
    case Stage::kWorking: break;
  }
  release(now, id);
}

void ReplacementPolicy::release(Instant now, const std::string& id) {
  Server& server = servers_.at(id);
  server.stage = Stage::kReleasing;
  server.deadline = now + kReleaseAgainAfter;
  effects_.emplace_back(policy_effect::Release{id});
}

void ReplacementPolicy::release_all(Instant now) {
  for (const auto& [id, server] : servers_) {
    if (server.stage != Stage::kReleasing) {
      release(now, id);
    }
  }
}

/// When the job has ended, no worker is waited for any more; evaluators may still measure.
void ReplacementPolicy::release_unused(Instant now) {
  for (const auto& [id, server] : servers_) {
    const bool lacks_worker = server.stage == Stage::kAwaited || server.stage == Stage::kSilent;
    if (lacks_worker && !is_for_evaluator(server) && !may_have_unnamed_worker(server)) {
      release(now, id);
    }
  }
}

/// With its worker asked first, if it has one.
void ReplacementPolicy::let_go(Instant now, const std::string& id) {
  Server& server = servers_.at(id);
  if (!server.member) {
    release(now, id);
    return;
  }
  server.stage = Stage::kLeaving;
  server.deadline = now + options_.leave_timeout;
  members_.at(*server.member).leaves = true;
  effects_.emplace_back(policy_effect::Drain{*server.member});
}

void ReplacementPolicy::request_list(Instant now) {
  if (list_due_ <= now && !list_in_flight_ && !settled()) {
    list_in_flight_ = true;
    list_asked_ = now;
    effects_.emplace_back(policy_effect::List{});
  }
}

// --- Time ---

std::optional<Instant> ReplacementPolicy::find_next_wake(Instant now) const {
  std::optional<Instant> next;
  const auto consider = [&](std::optional<Instant> moment) {
    if (moment) {
      const Instant later = std::max(*moment, now + kShortestWait);
      next = next ? std::min(*next, later) : later;
    }
  };
  for (const auto& [id, server] : servers_) {
    consider(server.deadline);
    if (server.is_used() && server.ends) {
      consider(*server.ends - options_.leave_timeout);
    }
  }
  for (const auto& [id, pending] : pending_) {
    consider(pending.repeat_at);
  }
  if (!list_in_flight_ && !settled()) {
    consider(list_due_);
  }
  consider(next_exchange_wake(now));
  if (surplus_since_) {
    consider(*surplus_since_ + options_.surplus_patience);
  }
  if (gather_until_ && *gather_until_ > now) {
    consider(gather_until_);
  } else if (gather_until_) {
    consider(catalog_.next_change(now));
  }
  consider(next_budget_alarm(now));
  return next;
}

bool ReplacementPolicy::settled() const {
  return ended_ && may_ask_ && servers_.empty() && pending_.empty();
}

PolicyStatus ReplacementPolicy::status(Instant now) const {
  return {target_,          staying(),
          coming(),         static_cast<std::uint32_t>(servers_.size()),
          bill_.spent(now), bill_.per_hour(),
          no_worker_comes()};
}

}  // namespace mayfly::cloud_hooks
