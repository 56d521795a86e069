#include "cloud_hooks/core/replacement_policy.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kEarlierServers = "of earlier processes";  // on the bill, until a list

}  // namespace

ReplacementPolicy::ReplacementPolicy(ReplacementOptions options)
    : options_(std::move(options)),
      target_(std::clamp(options_.target, 1U, options_.max)),
      catalog_(options_.offers, options_.backoff),
      bill_(options_.spent_before, options_.billed_at_least),
      random_(options_.identity) {
  ENSURE(!options_.offers.empty(), "something that may be asked for");
  ENSURE(options_.provider.count_max > 0, "a request asks for something");
  ENSURE(options_.max > 0, "a job has a worker");
  ENSURE(!catalog_.has_composition() || options_.on_demand_floor == 0,
         "a composition says itself what is on demand");
  const auto is_for_evaluator = [](const OfferTerms& terms) { return terms.for_evaluator; };
  ENSURE(!std::ranges::all_of(options_.offers, is_for_evaluator), "workers need an offer");
  ENSURE(options_.evaluators == 0 || std::ranges::any_of(options_.offers, is_for_evaluator),
         "evaluators that are counted apart have an offer");
}

std::vector<PolicyEffect> ReplacementPolicy::handle(Instant now, const PolicyEvent& event) {
  effects_.clear();
  std::visit([&](const auto& e) { on(now, e); }, event);
  plan(now);
  wake_ = find_next_wake(now);
  return std::move(effects_);
}

void ReplacementPolicy::tell(std::string kind, std::string detail, std::string server,
                             std::optional<double> cost) {
  const auto found = servers_.find(server);
  const bool for_evaluator = found != servers_.end() && is_for_evaluator(found->second);
  effects_.emplace_back(policy_effect::Tell{std::move(kind), std::move(detail), std::move(server),
                                            cost, for_evaluator});
}

double ReplacementPolicy::price_of(const Server& server) const {
  if (server.offer) {
    return catalog_.terms(*server.offer).price_per_hour;
  }
  double highest = 0;  // the assumed price of a server whose price is unknown
  for (const OfferTerms& terms : options_.offers) {
    highest = std::max(highest, terms.price_per_hour);
  }
  return highest;
}

std::string ReplacementPolicy::billing_item(const Pending& pending) {
  return "request " + pending.request.request_id;
}

std::string ReplacementPolicy::describe(const Server& server) const {
  return server.offer ? to_string(catalog_.terms(*server.offer).offer) : "a server of another list";
}

void ReplacementPolicy::on(Instant now, const policy_event::Begin&) {
  // If servers outlive this process, an earlier one may have left some: list before requesting.
  begun_ = now;
  if (options_.restarted) {
    bill_.open(kEarlierServers, options_.per_hour_before, now);
  }
  may_ask_ = !options_.provider.survives_us;
  list_due_ = may_ask_ ? now + options_.list_every : now;
}

void ReplacementPolicy::on(Instant, const policy_event::Tick&) {}

void ReplacementPolicy::on(Instant, const policy_event::Scaled& event) {
  const std::uint32_t wanted = std::clamp(event.target, 1U, options_.max);
  shrinks_ = wanted < target_ || (shrinks_ && wanted == target_);
  target_ = wanted;
  catalog_.forgive();
  told_exhausted_ = false;
}

void ReplacementPolicy::on(Instant now, const policy_event::WantedBack& event) {
  give_back(now, event.count, "an operator gave up " + std::to_string(event.count));
}

void ReplacementPolicy::on(Instant now, const policy_event::ReleaseAnswered& event) {
  const auto found = servers_.find(event.server);
  if (found == servers_.end()) {
    return;
  }
  if (event.error) {
    tell("release_failed", std::string(to_string(event.error->kind)) + ": " + event.error->detail,
         event.server);
    found->second.deadline =
        now + std::max(options_.rate_wait, event.error->retry_after.value_or(Duration(0)));
    return;
  }
  list_due_ = std::min(list_due_, now + options_.rate_wait);
}

// --- What exists ---

void ReplacementPolicy::on(Instant now, const policy_event::Listed& event) {
  list_in_flight_ = false;
  if (!event.answer.ok()) {
    const ProviderError& error = event.answer.error();
    list_due_ = now + std::max(options_.list_every, error.retry_after.value_or(Duration(0)));
    if (told_list_error_ != error.kind) {
      told_list_error_ = error.kind;
      tell("list_failed", std::string(to_string(error.kind)) + ": " + error.detail);
    }
    return;
  }
  told_list_error_.reset();
  (void)bill_.close(kEarlierServers, now);
  reconcile(now, event.answer.value());
  list_due_ = now + (has_unlisted_loss() ? options_.rate_wait : options_.list_every);
  wait_anew_for_silent(now);
  std::uint32_t ending = 0;
  for (const auto& [id, server] : servers_) {
    ending += server.stage == Stage::kLeaving || server.stage == Stage::kReleasing ? 1 : 0;
  }
  give_back(now, event.wanted_back - std::min(event.wanted_back, ending),
            "the provider wants " + std::to_string(event.wanted_back) + " back");
  // Requests that an earlier process sent just before it ended may appear in lists only later.
  const Duration unsure = options_.restarted ? options_.absence_grace : Duration(0);
  if (!may_ask_ && list_asked_ < begun_ + unsure) {
    list_due_ = std::min(list_due_, begun_ + unsure);
  } else {
    may_ask_ = true;
  }
}

bool ReplacementPolicy::has_unlisted_loss() const {
  return std::ranges::any_of(servers_,
                             [this](const auto& entry) { return is_loss_unlisted(entry.second); });
}

/// Their workers could not be expected while nobody reached us.
void ReplacementPolicy::wait_anew_for_silent(Instant now) {
  for (auto& [id, server] : servers_) {
    if (is_silent(server) && !server.deadline && !is_loss_unlisted(server)) {
      server.deadline = now + options_.rejoin_patience;
    }
  }
}

/// It is neither adopted nor released, whatever its label says. One without a request's id may be
/// ours.
bool ReplacementPolicy::is_of_another_job(const ServerStatus& status) const {
  return !status.request_id.empty() && !status.request_id.ends_with(options_.job_mark) &&
         !servers_.contains(status.id);
}

void ReplacementPolicy::tell_of_other_jobs(const std::vector<ServerStatus>& servers) {
  const auto others = std::ranges::count_if(servers, [this](const ServerStatus& status) {
    return status.alive() && is_of_another_job(status);
  });
  if (others > 0 && !std::exchange(told_of_other_jobs_, true)) {
    tell("other_job",
         std::to_string(others) +
             " of the listed servers were requested by another job of the same name, and are left "
             "alone; --cloud-job gives a job a name of its own",
         "");
  }
}

/// The provider's list is the truth, with one exception: a new server may be missing in it for
/// absence_grace. A server that this process does not know is adopted, and paid for, unless it is
/// already ending.
void ReplacementPolicy::reconcile(Instant now, const std::vector<ServerStatus>& servers) {
  std::map<std::string, const ServerStatus*> listed;
  tell_of_other_jobs(servers);
  for (const ServerStatus& status : servers) {
    if (is_of_another_job(status)) {
      continue;
    }
    listed[status.id] = &status;
    const auto known = servers_.find(status.id);
    if (known != servers_.end()) {
      refresh(now, known->second, status);
      continue;
    }
    const auto request = pending_.find(status.request_id);
    Pending* const pending = request == pending_.end() ? nullptr : &request->second;
    if (!status.alive() && pending != nullptr) {
      granted_and_gone(now, status, *pending);
    } else if (status.alive() &&
               (pending != nullptr || !may_ask_ || status.state != ServerState::kStopping)) {
      track(now, status, pending);
    }
  }
  std::vector<std::pair<std::string, ServerStatus>> gone;
  ServerStatus unlisted;
  unlisted.detail = "no longer listed";
  for (auto& [id, server] : servers_) {
    const auto at = listed.find(id);
    if (at == listed.end() || !at->second->is_remembered) {
      server.looked_for = list_asked_;
    }
    if (at == listed.end() && list_asked_ >= server.seen + options_.absence_grace) {
      gone.emplace_back(id, unlisted);
    } else if (at != listed.end() && !at->second->alive()) {
      gone.emplace_back(id, *at->second);
    }
  }
  for (const auto& [id, status] : gone) {
    server_gone(now, id, status);
  }
  settle_requests();
}

/// A list that was requested long after the last attempt contains all servers of the request that
/// still exist. Servers that existed only between two lists were never seen but are billed: for the
/// time without a list plus the time that a new server may be missing in one.
void ReplacementPolicy::settle_requests() {
  for (auto& [id, pending] : pending_) {
    pending.unseen = std::max(pending.unseen, list_asked_ - pending.looked);
    pending.looked = std::max(pending.looked, list_asked_);
  }
  std::erase_if(pending_, [&](const auto& entry) {
    const Pending& pending = entry.second;
    const bool settled =
        pending.unsettled && list_asked_ >= *pending.unsettled + options_.absence_grace;
    if (settled && pending.missing() > 0) {
      const Duration existed =
          std::min(pending.unseen + options_.absence_grace, list_asked_ - pending.sent);
      const double cost = bill_.close_unseen(billing_item(pending), existed);
      tell("request_given_up",
           to_string(catalog_.terms(pending.offer).offer) + ": " +
               std::to_string(pending.missing()) +
               " of its servers were never seen; they count as billed for as long as they may "
               "have existed between two lists",
           "", cost);
    }
    return settled;
  });
}

/// A server that is first reported when it has already ended was billed nevertheless.
void ReplacementPolicy::granted_and_gone(Instant now, const ServerStatus& status,
                                         Pending& pending) {
  if (!pending.servers.insert(status.id).second) {
    return;
  }
  bill_the_missing(pending);
  const double price = status.price_per_hour.value_or(catalog_.terms(pending.offer).price_per_hour);
  bill_.open(status.id, price, pending.sent);
  const double cost = bill_.close(status.id, now);
  if (status.failed) {
    failed_to_start(now, pending.offer, status.id,
                    to_string(catalog_.terms(pending.offer).offer) + ": " + status.detail);
  } else {
    (void)catalog_.out_of_stock(pending.offer, now, {});
  }
  tell("server_refused", "granted and gone at once: " + status.detail, status.id, cost);
}

/// The request itself is billed for those of its servers that have not been seen.
void ReplacementPolicy::bill_the_missing(const Pending& pending) {
  bill_.drop(billing_item(pending));
  if (pending.missing() > 0) {
    bill_.open(billing_item(pending),
               catalog_.terms(pending.offer).price_per_hour * pending.missing(), pending.sent);
  }
}

void ReplacementPolicy::track(Instant now, const ServerStatus& status, const Pending* pending) {
  Server server;
  server.request_id = status.request_id;
  server.offer = pending != nullptr ? pending->offer : catalog_.find(status.offer);
  server.seen = now;
  server.born = now - status.uptime.value_or(Duration(0));
  server.asked = pending != nullptr ? pending->sent : Instant{};
  server.is_adopted = pending == nullptr;
  server.order = servers_seen_++;
  Instant since = now;  // of what an earlier process left: it is in spent_before until now
  if (const auto before = billed_until_.find(status.id); before != billed_until_.end()) {
    since = before->second;  // a list did not show it, so it was taken for gone
  } else if (pending != nullptr) {
    since = pending->sent;
  } else if (status.uptime && (may_ask_ || !options_.restarted || !options_.spent_is_known)) {
    since = now - *status.uptime;
  }
  if (pending != nullptr) {
    Pending& request = pending_.at(pending->request.request_id);
    request.servers.insert(status.id);
    bill_the_missing(request);
    if (request.request.lifetime_max > Duration(0)) {
      server.ends = request.sent + request.request.lifetime_max;
    }
  } else if (status.uptime && options_.lifetime_max > Duration(0)) {
    server.ends = server.born + options_.lifetime_max;  // perhaps it was asked for less
  }
  note_price(server, status, price_of(server));
  bill_.open(status.id, status.price_per_hour.value_or(price_of(server)), since);
  server.deadline = now + options_.start_timeout;
  const auto member = std::find_if(members_.begin(), members_.end(), [&](const auto& entry) {
    return entry.second.server == status.id;
  });
  if (member != members_.end()) {  // its worker joined before the answer
    server.member = member->first;
    server.stage = member->second.leaves ? Stage::kLeaving : Stage::kWorking;
    server.deadline.reset();
  } else {
    presume_worker(server);
  }
  Server& kept = servers_.emplace(status.id, std::move(server)).first->second;
  tell(pending != nullptr ? "server_granted" : "server_adopted",
       pending != nullptr ? describe(kept) : describe(kept) + " carries this job's label",
       status.id);
  refresh(now, kept, status);
}

/// A price that is news is the one of its offer from now on. Servers may keep an old one.
void ReplacementPolicy::note_price(const Server& server, const ServerStatus& status,
                                   double before) {
  const double price = status.price_per_hour.value_or(before);
  if (server.offer && price != before && price >= 0) {
    catalog_.priced(*server.offer, price);
  }
}

void ReplacementPolicy::refresh(Instant now, Server& server, const ServerStatus& status) {
  if (status.price_per_hour) {
    note_price(server, status, bill_.price_per_hour(status.id));
    // Until its price was known it was billed for the one of its offer.
    bill_.reprice(status.id, *status.price_per_hour, server.has_price ? now : Instant{});
    server.has_price = true;
  }
  if (status.state == ServerState::kRunning && !server.runs) {
    server.runs = true;
    if (server.stage == Stage::kAwaited) {
      server.deadline = now + options_.join_timeout;
    }
  }
  if (status.state == ServerState::kStopping &&
      (server.stays() || (status.failed && server.is_used()))) {  // which was not announced
    if (!first_loss_) {
      first_loss_ = now;
    }
    server.never_joined = server.stage == Stage::kAwaited;
    if (server.never_joined && !status.failed && server.offer) {
      (void)catalog_.out_of_stock(*server.offer, now, {});
    }
    server.stage = Stage::kLeaving;
    server.deadline = now + options_.leave_timeout;
    tell("server_lost", status.failed ? "has shut itself down" : "is being taken away", status.id);
  }
  if (status.state == ServerState::kStopping && status.failed && server.stage == Stage::kLeaving) {
    server.deadline = now;  // nothing works there any more, but it is paid for
    if (std::exchange(server.never_joined, false)) {
      failed_to_start(now, server, status.id, describe(server));
    }
  }
}

void ReplacementPolicy::never_joined(Instant now, const std::string& id, const Server& server) {
  if (!server.offer) {
    return;
  }
  if (!server.runs) {  // it does not run yet, for example because it waits in a queue
    (void)catalog_.out_of_stock(*server.offer, now, {});
    return;
  }
  failed_to_start(now, server, id, describe(server));
}

/// One that an earlier process requested says nothing of its offer: its worker may have joined that
/// process, and ended because it found no coordinator any more.
void ReplacementPolicy::failed_to_start(Instant now, const Server& server, const std::string& id,
                                        const std::string& what) {
  if (server.offer && !server.is_adopted) {
    failed_to_start(now, *server.offer, id, what);
  }
}

void ReplacementPolicy::failed_to_start(Instant now, std::size_t offer, const std::string& id,
                                        const std::string& what) {
  if (catalog_.failed_to_start(offer, now)) {
    tell("offer_stopped",
         what + ": three servers in a row started without a worker joining the job", id);
    if (catalog_.no_worker_offer_left()) {
      tell("no_server_starts", "no offer is left; the last one was " + what, id);
    }
  }
}

void ReplacementPolicy::server_gone(Instant now, const std::string& id,
                                    const ServerStatus& status) {
  const auto found = servers_.find(id);
  const Server server = found->second;
  servers_.erase(found);
  if (server.stays() && !first_loss_) {
    first_loss_ = now;
  }
  if (server.member) {  // its connection will break too; until then it does not count
    members_.at(*server.member).server_is_gone = true;
  }
  if (server.offer) {
    catalog_.quota_freed(*server.offer);
    if (status.failed && (server.stage == Stage::kAwaited || server.never_joined)) {
      failed_to_start(now, server, id, describe(server) + ": " + status.detail);
    } else if (server.stage == Stage::kAwaited) {
      (void)catalog_.out_of_stock(*server.offer, now, {});  // granted, and taken away before it ran
    }
  }
  told_exhausted_ = false;
  const double cost = bill_.close(id, now);
  billed_until_[id] = now;
  tell("server_ended", describe(server) + (status.detail.empty() ? "" : ": " + status.detail), id,
       cost);
}

void ReplacementPolicy::on(Instant, const policy_event::Closing&) {
  is_closing_ = true;
}

void ReplacementPolicy::on(Instant now, const policy_event::Ended&) {
  is_closing_ = ended_ = true;
  list_due_ = std::min(list_due_, now);
}

}  // namespace mayfly::cloud_hooks
