#include "cloud_hooks/core/fleet.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::cloud_hooks {
namespace {

/// A server that still runs so long after its release was accepted is released once more.
constexpr Duration kReleaseAgainAfter = seconds(60);

}  // namespace

// --- Queries ---

const Fleet::Server* Fleet::find(const std::string& id) const {
  const auto found = servers_.find(id);
  return found == servers_.end() ? nullptr : &found->second;
}

bool Fleet::is_for_evaluator(const Server& server) const {
  return server.offer && catalog_.terms(*server.offer).for_evaluator;
}

bool Fleet::is_on_demand(const Server& server) const {
  return server.offer && catalog_.terms(*server.offer).offer.market == Market::kOnDemand;
}

bool Fleet::is_irreplaceable(const Server& server) const {
  return server.member && members_.at(*server.member).is_irreplaceable;
}

double Fleet::measured_speed(const Server& server) const {
  const auto member = server.member ? members_.find(*server.member) : members_.end();
  return member == members_.end() ? 0 : member->second.speed;
}

double Fleet::speed_of(const Server& server) const {
  const double measured = measured_speed(server);
  return measured > 0 ? measured : catalog_.speed(server.offer);
}

double Fleet::price_of(const Server& server) const {
  if (server.offer) {
    return catalog_.terms(*server.offer).price_per_hour;
  }
  double highest = 0;
  for (const OfferTerms& terms : options_.offers) {
    highest = std::max(highest, terms.price_per_hour);
  }
  return highest;
}

bool Fleet::is_at_work(Instant now, const Server& server) const {
  return server.stage == Stage::kWorking && server.member &&
         (measured_speed(server) > 0 || now >= at_work_by(server));
}

std::optional<Instant> Fleet::at_work_by(const Server& server) const {
  return server.member ? std::optional(members_.at(*server.member).joined + options_.join_timeout)
                       : std::nullopt;
}

bool Fleet::is_silent(const Server& server) const {
  return server.stage == Stage::kSilent || (server.stage == Stage::kUnnamed && !has_unnamed());
}

bool Fleet::is_loss_unlisted(const Server& server) const {
  return is_silent(server) && server.silent_since > server.looked_for;
}

std::string Fleet::describe(const Server& server) const {
  return server.offer ? to_string(catalog_.terms(*server.offer).offer) : "a server of another list";
}

std::uint32_t Fleet::staying() const {
  std::uint32_t count = 0;
  for (const auto& [id, server] : servers_) {
    count += server.stays() && !server.gives_way && !is_for_evaluator(server) ? 1 : 0;
  }
  for (const auto& [id, member] : members_) {  // those on a known server are counted above
    count += member.stays() && !servers_.contains(member.server) ? 1 : 0;
  }
  return count - counted_twice();
}

std::uint32_t Fleet::staying_for_evaluators() const {
  std::uint32_t count = 0;
  for (const auto& [id, server] : servers_) {
    count += server.stays() && is_for_evaluator(server) ? 1 : 0;
  }
  return count;
}

std::uint32_t Fleet::present(std::size_t offer) const {
  std::uint32_t count = 0;
  for (const auto& [id, server] : servers_) {
    count += server.is_used() && !server.gives_way && server.offer == offer ? 1 : 0;
  }
  return count;
}

std::uint32_t Fleet::working(std::size_t offer) const {
  std::uint32_t count = 0;
  for (const auto& [id, server] : servers_) {
    count += server.offer == offer && server.stage == Stage::kWorking ? 1 : 0;
  }
  return count;
}

std::uint32_t Fleet::ending() const {
  std::uint32_t count = 0;
  for (const auto& [id, server] : servers_) {
    count += server.is_ending() ? 1 : 0;
  }
  return count;
}

bool Fleet::may_bring_worker() const {
  return std::ranges::any_of(servers_, [this](const auto& entry) {
    const Server& server = entry.second;
    return (server.is_used() || server.stage == Stage::kSilent) && !is_for_evaluator(server);
  });
}

bool Fleet::uses_quota_of(std::size_t offer) const {
  return std::ranges::any_of(servers_, [&](const auto& entry) {
    return entry.second.offer && catalog_.share_quota(*entry.second.offer, offer);
  });
}

std::optional<Instant> Fleet::next_deadline() const {
  std::optional<Instant> next;
  for (const auto& [id, server] : servers_) {
    for (const std::optional<Instant>& moment : {server.deadline, leaves_by(server)}) {
      next = moment ? std::min(*moment, next.value_or(*moment)) : next;
    }
  }
  return next;
}

std::optional<Instant> Fleet::leaves_by(const Server& server) const {
  return server.is_used() && server.ends ? std::optional(*server.ends - options_.leave_timeout)
                                         : std::nullopt;
}

void Fleet::note(std::string kind, const std::string& id, std::string detail,
                 std::optional<double> cost) const {
  const Server* const server = find(id);
  const bool for_evaluator = server != nullptr && is_for_evaluator(*server);
  effects_.add(policy_effect::Note{std::move(kind), std::move(detail), id, cost, for_evaluator});
}

// --- Facts from the provider ---

const Fleet::Server& Fleet::add(Instant now, const std::string& id, const Arrival& arrival) {
  Server& server = servers_[id];
  static_cast<Arrival&>(server) = arrival;
  server.seen = now;
  server.deadline = now + options_.start_timeout;
  server.order = servers_seen_++;
  if (const std::optional<MemberId> worker = worker_on(id)) {  // joined before the answer
    server.member = worker;
    server.stage = members_.at(*worker).leaves ? Stage::kLeaving : Stage::kWorking;
    server.deadline.reset();
  } else {
    presume_worker(server);
  }
  return server;
}

void Fleet::started(Instant now, const std::string& id) {
  Server& server = servers_.at(id);
  if (!std::exchange(server.runs, true) && server.stage == Stage::kAwaited) {
    server.deadline = now + options_.join_timeout;
  }
}

void Fleet::lifetime_began(const std::string& id, Instant begin) {
  Server& server = servers_.at(id);
  if (server.ends && !server.runs) {
    server.ends = std::max(*server.ends, begin + server.lifetime);
  }
}

bool Fleet::stopping(Instant now, const std::string& id, bool failed) {
  Server& server = servers_.at(id);
  if (!server.stays() && !(failed && server.is_used())) {
    return false;  // it was known before
  }
  server.never_joined = server.stage == Stage::kAwaited;
  server.stage = Stage::kLeaving;
  server.deadline = now + options_.leave_timeout;
  return true;
}

bool Fleet::stopped(Instant now, const std::string& id) {
  Server& server = servers_.at(id);
  if (server.stage != Stage::kLeaving) {
    return false;
  }
  server.deadline = now;  // its program has ended, but it is still billed
  return std::exchange(server.never_joined, false);
}

void Fleet::looked_for(const std::string& id, Instant asked) {
  servers_.at(id).looked_for = asked;
}

Fleet::Server Fleet::remove(const std::string& id) {
  Server server = std::move(servers_.extract(id).mapped());
  for (auto& [member_id, member] : members_) {  // the connections of its workers will break, too
    member.server_is_gone = member.server_is_gone || member.server == id;
  }
  return server;
}

void Fleet::wait_anew_for_silent(Instant now) {
  for (auto& [id, server] : servers_) {
    if (is_silent(server) && !server.deadline && !is_loss_unlisted(server)) {
      server.deadline = now + options_.rejoin_patience;
    }
  }
}

bool Fleet::has_unlisted_loss() const {
  return std::ranges::any_of(servers_,
                             [this](const auto& entry) { return is_loss_unlisted(entry.second); });
}

// --- Facts from the job ---

const Fleet::Server* Fleet::joined(Instant now, MemberId id, const std::string& server_id) {
  Member& member = members_[id];
  member = {server_id, now};
  if (server_id.empty()) {
    presume_server(member);
    return nullptr;
  }
  const auto found = servers_.find(server_id);
  if (found == servers_.end() || found->second.is_ending() ||
      found->second.stage == Stage::kWorking) {
    return nullptr;
  }
  Server& server = found->second;
  server.stage = Stage::kWorking;
  server.deadline.reset();
  server.member = id;
  note("server_joined", server_id, describe(server));
  return &server;
}

void Fleet::irreplaceable(MemberId id) {
  if (const auto member = members_.find(id); member != members_.end()) {
    member->second.is_irreplaceable = true;
  }
}

bool Fleet::leaving(Instant now, MemberId id) {
  const auto member = members_.find(id);
  if (member == members_.end() || std::exchange(member->second.leaves, true)) {
    return false;
  }
  const auto found = servers_.find(member->second.server);
  if (found != servers_.end() && found->second.member == id) {
    set_worker(now, found->second, *worker_on(found->first));
  }
  return true;
}

std::optional<Fleet::Loss> Fleet::gone(Instant now, MemberId id, bool job_ends) {
  const auto member = members_.find(id);
  if (member == members_.end()) {
    return std::nullopt;
  }
  Loss loss;
  loss.was_announced = member->second.leaves;
  const std::string server_id = member->second.server;
  const bool was_unnamed = is_unnamed(member->second);
  members_.erase(member);
  if (was_unnamed) {
    loss.may_concern_server = true;
    wait_for_unnamed(now);
    return loss;
  }
  const auto found = servers_.find(server_id);
  if (found == servers_.end() || found->second.member != id) {
    return loss;
  }
  loss.may_concern_server = true;
  Server& server = found->second;
  if (const std::optional<MemberId> other = worker_on(server_id)) {
    set_worker(now, server, *other);
    if (server.stage == Stage::kLeaving && !members_.at(*other).leaves) {
      let_go(now, server_id);
    }
    return loss;
  }
  server.member.reset();
  if (server.stage == Stage::kLeaving || (server.stage == Stage::kWorking && job_ends)) {
    release(now, server_id);
  } else if (server.stage == Stage::kWorking) {
    server.stage = Stage::kSilent;
    server.silent_since = now;
    server.deadline = now + options_.rejoin_patience;
    loss.offer = server.offer;
    note("server_lost", server_id, describe(server) + " has lost its worker");
  }
  return loss;
}

std::optional<std::size_t> Fleet::measured(MemberId id, double speed) {
  const auto member = members_.find(id);
  if (member == members_.end()) {
    return std::nullopt;
  }
  member->second.speed = speed;
  const Server* const server = find(member->second.server);
  return server == nullptr ? std::nullopt : server->offer;
}

// --- Several workers on one server ---

/// A member that names this server, if possible one that stays.
std::optional<MemberId> Fleet::worker_on(const std::string& server) const {
  std::optional<MemberId> found;
  for (const auto& [id, member] : members_) {
    found = member.server == server && (!found || !member.leaves) ? id : found;
  }
  return found;
}

/// The server works as long as one of its workers stays.
void Fleet::set_worker(Instant now, Server& server, MemberId worker) const {
  server.member = worker;
  if (server.stage == Stage::kWorking && members_.at(worker).leaves) {
    server.stage = Stage::kLeaving;
    server.deadline = now + options_.leave_timeout;
  }
}

// --- Decisions ---

void Fleet::release(Instant now, const std::string& id) {
  Server& server = servers_.at(id);
  server.stage = Stage::kReleasing;
  server.deadline = now + kReleaseAgainAfter;
  effects_.add(policy_effect::Release{id});
}

void Fleet::let_go(Instant now, const std::string& id) {
  Server& server = servers_.at(id);
  if (!server.member) {
    release(now, id);
    return;
  }
  server.stage = Stage::kLeaving;
  server.deadline = now + options_.leave_timeout;
  members_.at(*server.member).leaves = true;
  effects_.add(policy_effect::Drain{*server.member});
}

void Fleet::release_again(Instant now, const std::string& id, Duration wait) {
  Server& server = servers_.at(id);
  server.deadline = now + std::max(wait, repetition_wait(options_, server.refused_releases++));
}

void Fleet::release_all(Instant now) {
  for (const auto& [id, server] : servers_) {
    if (server.stage != Stage::kReleasing) {
      release(now, id);
    }
  }
}

void Fleet::release_unused(Instant now) {
  for (const auto& [id, server] : servers_) {
    const bool lacks_worker = server.stage == Stage::kAwaited || server.stage == Stage::kSilent;
    if (lacks_worker && !is_for_evaluator(server) && !may_have_unnamed_worker(server)) {
      release(now, id);
    }
  }
}

void Fleet::drain_without_server(std::uint32_t count) {
  for (auto& [id, member] : members_) {
    if (count > 0 && member.stays() && !member.is_irreplaceable &&
        !servers_.contains(member.server)) {
      member.leaves = true;
      effects_.add(policy_effect::Drain{id});
      --count;
    }
  }
}

bool Fleet::keeps_waiting(const std::string& id) {
  Server& server = servers_.at(id);
  if (may_have_unnamed_worker(server)) {
    server.stage = Stage::kUnnamed;
    server.deadline.reset();
    note_unnamed();
    return true;
  }
  if (is_loss_unlisted(server)) {
    server.deadline.reset();  // the provider is silent, too: this process may be cut off
    return true;
  }
  return false;
}

void Fleet::set_gives_way(const std::string& id, bool gives_way) {
  servers_.at(id).gives_way = gives_way;
}

}  // namespace mayfly::cloud_hooks
