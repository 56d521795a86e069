#include "cloud_hooks/core/server_lifecycle.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::cloud_hooks {

namespace {

using Stage = Fleet::Stage;

}  // namespace

ServerLifecycle::ServerLifecycle(const ReplacementOptions& options, OfferCatalog& catalog,
                                 Bill& bill, const ListSchedule& lists, Shortage& shortage,
                                 EffectList& effects, Fleet& fleet, OpenRequests& requests)
    : options_(options),
      catalog_(catalog),
      bill_(bill),
      lists_(lists),
      shortage_(shortage),
      effects_(effects),
      fleet_(fleet),
      requests_(requests) {}

// --- Lists ---

/// Such a server is neither adopted nor released, whatever its label says. A server without a
/// request id may be ours.
bool ServerLifecycle::is_of_another_job(const ServerStatus& status) const {
  return !status.request_id.empty() && !status.request_id.ends_with(options_.job_mark) &&
         fleet_.find(status.id) == nullptr;
}

void ServerLifecycle::note_other_jobs(const std::vector<ServerStatus>& servers) {
  const auto others = std::ranges::count_if(servers, [this](const ServerStatus& status) {
    return status.alive() && is_of_another_job(status);
  });
  if (others > 0 && !std::exchange(other_jobs_noted_, true)) {
    effects_.note("other_job",
                  std::to_string(others) +
                      " of the listed servers were requested by another job of the same name, and "
                      "are not touched; --cloud-job gives a job a name of its own");
  }
}

void ServerLifecycle::reconcile(Instant now, const std::vector<ServerStatus>& servers) {
  note_other_jobs(servers);
  std::map<std::string, const ServerStatus*> listed;
  for (const ServerStatus& status : servers) {
    if (is_of_another_job(status)) {
      continue;
    }
    listed[status.id] = &status;
    const Open* const request = requests_.find(status.request_id);
    if (fleet_.find(status.id) != nullptr) {
      changed(now, status);
    } else if (!status.alive() && request != nullptr) {
      appeared_too_late(now, status, *request);
    } else if (status.alive() && (request != nullptr || !lists_.knows_earlier_servers() ||
                                  status.state != ServerState::kStopping)) {
      appeared(now, status, request);
    }
  }
  std::vector<std::pair<std::string, ServerStatus>> ended;
  ServerStatus unlisted;
  unlisted.detail = "no longer listed";
  for (const auto& [id, server] : fleet_.servers()) {
    const auto at = listed.find(id);
    if (at == listed.end() || !at->second->is_remembered) {
      fleet_.looked_for(id, lists_.requested_at());
    }
    if (at == listed.end() && lists_.proves_absence(server.seen)) {
      ended.emplace_back(id, unlisted);
    } else if (at != listed.end() && !at->second->alive()) {
      ended.emplace_back(id, *at->second);
    }
  }
  for (const auto& [id, status] : ended) {
    gone(now, id, status);
  }
  requests_.settle();
}

// --- Answers ---

void ServerLifecycle::answered(Instant now, const std::string& request_id,
                               const RequestOutcome& outcome) {
  const Open* const request = requests_.find(request_id);
  for (const ServerStatus& status : outcome.servers) {
    const bool is_news = fleet_.find(status.id) == nullptr;
    if (is_news && status.alive()) {
      appeared(now, status, request);
    } else if (is_news && request != nullptr) {
      appeared_too_late(now, status, *request);
    }
  }
  const bool is_refused = outcome.error && outcome.error->kind != ProviderErrorKind::kRate;
  if (request != nullptr && is_refused && request->repeats == 0) {
    drop_never_made(request_id, outcome);
  }
}

/// Removes servers that a list showed before their request failed, and that were not created after
/// all. Not for a repeated request, because an earlier attempt may have created them.
void ServerLifecycle::drop_never_made(const std::string& request_id,
                                      const RequestOutcome& outcome) {
  std::vector<std::string> never_made;
  for (const auto& [id, server] : fleet_.servers()) {
    const bool is_made =
        server.runs || server.member ||
        std::ranges::find(outcome.servers, id, &ServerStatus::id) != outcome.servers.end();
    if (!is_made && server.request_id == request_id) {
      never_made.push_back(id);
    }
  }
  for (const std::string& id : never_made) {
    bill_.drop(id);
    fleet_.note("server_ended", id, fleet_.describe(*fleet_.find(id)) + ": it was not created",
                0.0);
    fleet_.remove(id);
  }
}

// --- The steps of a life ---

void ServerLifecycle::appeared(Instant now, const ServerStatus& status, const Open* request) {
  Fleet::Arrival arrival;
  arrival.request_id = status.request_id;
  arrival.offer = request != nullptr ? request->offer : catalog_.find(status.offer);
  arrival.born = now - status.uptime.value_or(Duration(0));
  arrival.is_adopted = request == nullptr;
  if (request != nullptr) {
    arrival.asked = request->sent;
    arrival.lifetime = request->request.lifetime_max;
    if (arrival.lifetime > Duration(0)) {
      arrival.ends = request->sent + arrival.lifetime;
    }
    requests_.saw(request->request.request_id, status.id);
  } else if (status.uptime && options_.lifetime_max > Duration(0)) {
    arrival.lifetime = options_.lifetime_max;  // its request may have stated less
    arrival.ends = arrival.born + arrival.lifetime;
  }
  const Fleet::Server& server = fleet_.add(now, status.id, arrival);
  note_price(server, status, fleet_.price_of(server));
  bill_.open(status.id, status.price_per_hour.value_or(fleet_.price_of(server)),
             billed_since(now, status, request));
  if (request != nullptr) {
    fleet_.note("server_granted", status.id, fleet_.describe(server));
  } else {
    fleet_.note("server_adopted", status.id, fleet_.describe(server) + " carries this job's label");
  }
  changed(now, status);
}

Instant ServerLifecycle::billed_since(Instant now, const ServerStatus& status,
                                      const Open* request) const {
  if (const auto before = billed_until_.find(status.id); before != billed_until_.end()) {
    return before->second;  // a list did not show it, so it was taken for gone
  }
  if (request != nullptr) {
    return request->sent;
  }
  const bool is_in_spent_before =
      options_.restarted && options_.spent_is_known && !lists_.knows_earlier_servers();
  return status.uptime && !is_in_spent_before ? now - *status.uptime : now;
}

/// A server that is first reported when it has already ended was billed nevertheless.
void ServerLifecycle::appeared_too_late(Instant now, const ServerStatus& status,
                                        const Open& request) {
  if (request.servers.contains(status.id)) {
    return;
  }
  requests_.saw(request.request.request_id, status.id);
  const OfferTerms& terms = catalog_.terms(request.offer);
  bill_.open(status.id, status.price_per_hour.value_or(terms.price_per_hour), request.sent);
  const double cost = bill_.close(status.id, now);
  billed_until_[status.id] = now;  // a later list may show it alive after all
  if (status.failed) {
    failed_to_start(now, request.offer, status.id, to_string(terms.offer) + ": " + status.detail);
  } else {
    (void)catalog_.out_of_stock(request.offer, now, {});
  }
  fleet_.note("server_refused", status.id, "granted and ended at once: " + status.detail, cost);
}

void ServerLifecycle::changed(Instant now, const ServerStatus& status) {
  const Fleet::Server& server = *fleet_.find(status.id);
  if (status.price_per_hour) {
    note_price(server, status, bill_.price_per_hour(status.id));
    bill_.state_price(status.id, *status.price_per_hour, now);
  }
  if (status.uptime) {
    fleet_.lifetime_began(status.id, now - *status.uptime);
  }
  if (status.state == ServerState::kRunning) {
    fleet_.started(now, status.id);
  }
  if (status.state != ServerState::kStopping) {
    return;
  }
  if (fleet_.stopping(now, status.id, status.failed)) {  // the end was not announced
    shortage_.noticed(now);
    if (server.never_joined && !status.failed) {
      out_of_stock(now, server);
    }
    fleet_.note("server_lost", status.id,
                status.failed ? "has shut itself down" : "is being taken away");
  }
  if (status.failed && fleet_.stopped(now, status.id)) {
    failed_to_start(now, server, status.id, fleet_.describe(server));
  }
}

/// A new price is that of the offer from now on. Other servers of the offer may keep an old one.
void ServerLifecycle::note_price(const Fleet::Server& server, const ServerStatus& status,
                                 double before) {
  const double price = status.price_per_hour.value_or(before);
  if (server.offer && price != before && price >= 0) {
    catalog_.priced(*server.offer, price);
  }
}

void ServerLifecycle::gone(Instant now, const std::string& id, const ServerStatus& status) {
  const Fleet::Server server = fleet_.remove(id);
  if (server.stays()) {
    shortage_.noticed(now);
  }
  shortage_.changed();
  if (server.offer) {
    catalog_.quota_freed(*server.offer);
  }
  if (status.failed && (server.stage == Stage::kAwaited || server.never_joined)) {
    failed_to_start(now, server, id, fleet_.describe(server) + ": " + status.detail);
  } else if (server.stage == Stage::kAwaited) {
    out_of_stock(now, server);  // granted, and taken away before it ran
  }
  const double cost = bill_.close(id, now);
  billed_until_[id] = now;
  fleet_.note("server_ended", id,
              fleet_.describe(server) + (status.detail.empty() ? "" : ": " + status.detail), cost);
}

// --- Time ---

void ServerLifecycle::watch(Instant now) {
  for (const auto& [id, server] : fleet_.servers()) {
    if (server.deadline && *server.deadline <= now && !fleet_.keeps_waiting(id)) {
      stage_is_over(now, id, server);
    }
    const std::optional<Instant> leaves_by = fleet_.leaves_by(server);
    if (leaves_by && *leaves_by <= now) {
      fleet_.note("server_given_up", id,
                  fleet_.describe(server) + " is at the end of its lifetime");
      shortage_.noticed(now);
      fleet_.let_go(now, id);
    }
  }
}

void ServerLifecycle::stage_is_over(Instant now, const std::string& id,
                                    const Fleet::Server& server) {
  const std::string what = fleet_.describe(server);
  switch (server.stage) {
    case Stage::kAwaited:
      if (server.runs) {
        fleet_.note("server_given_up", id, what + " brought no worker into the job in time");
        failed_to_start(now, server, id, what);
      } else {  // for example because the provider has queued it
        fleet_.note("server_given_up", id, what + " did not start in time");
        out_of_stock(now, server);
      }
      break;
    case Stage::kSilent:
    case Stage::kUnnamed:
      fleet_.note("server_given_up", id, what + ": its worker did not return");
      break;
    case Stage::kLeaving:
    case Stage::kReleasing:
    case Stage::kWorking: break;
  }
  fleet_.release(now, id);
}

// --- Consequences for the offer ---

void ServerLifecycle::out_of_stock(Instant now, const Fleet::Server& server) {
  if (server.offer) {
    (void)catalog_.out_of_stock(*server.offer, now, {});
  }
}

/// The failure of a server that an earlier process requested says nothing about its offer: the
/// worker may have joined that process, and ended because it lost its coordinator.
void ServerLifecycle::failed_to_start(Instant now, const Fleet::Server& server,
                                      const std::string& id, const std::string& what) {
  if (server.offer && !server.is_adopted) {
    failed_to_start(now, *server.offer, id, what);
  }
}

void ServerLifecycle::failed_to_start(Instant now, std::size_t offer, const std::string& id,
                                      const std::string& what) {
  if (catalog_.failed_to_start(offer, now)) {
    fleet_.note("offer_stopped", id,
                what + ": three servers in a row started without a worker joining the job");
    if (catalog_.no_worker_offer_left()) {
      fleet_.note("no_server_starts", id, "no offer is left; the last one was " + what);
    }
  }
}

}  // namespace mayfly::cloud_hooks
