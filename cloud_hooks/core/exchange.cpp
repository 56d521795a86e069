#include "cloud_hooks/core/exchange.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

namespace mayfly::cloud_hooks {

Exchange::Exchange(const ReplacementOptions& options, const OfferCatalog& catalog,
                   const Demand& demand, const OpenRequests& requests, Fleet& fleet,
                   Provisioner& provisioner)
    : options_(options),
      catalog_(catalog),
      demand_(demand),
      requests_(requests),
      fleet_(fleet),
      provisioner_(provisioner) {}

void Exchange::begin(Instant now) {
  const std::optional<Possible> best = find();
  if (!best || best->due > now || provisioner_.affordable(now, best->offer, 1) == 0) {
    return;
  }
  fleet_.note(catalog_.has_composition() ? "back_to_composition" : "back_to_spot", best->server,
              fleet_.describe(*fleet_.find(best->server)) + " is to be exchanged for " +
                  to_string(catalog_.terms(best->offer).offer));
  under_way_ = UnderWay{best->server, provisioner_.request(now, best->offer, 1)};
  fleet_.set_gives_way(best->server, true);
}

void Exchange::watch(Instant now, bool may_request) {
  const Fleet::Server* const old = fleet_.find(under_way_->server);
  if (!may_request || old == nullptr || old->stage != Fleet::Stage::kWorking) {
    stop();  // if the old server is gone, its successor replaces it
    return;
  }
  const OpenRequests::Open* const request = requests_.find(under_way_->request_id);
  bool is_awaited = request != nullptr && !request->unsettled;
  for (const auto& [id, server] : fleet_.servers()) {
    if (server.request_id != under_way_->request_id) {
      continue;
    }
    if (fleet_.is_at_work(now, server)) {
      const std::string gives_way = under_way_->server;
      failures_ = 0;
      end(now);
      fleet_.note("server_given_up", gives_way,
                  fleet_.describe(*old) + ": " + id +
                      (catalog_.has_composition() ? " belongs to the composition"
                                                  : " is as fast and costs less"));
      fleet_.let_go(now, gives_way);
      return;
    }
    is_awaited = is_awaited || server.stays();
  }
  if (!is_awaited) {
    failures_ = std::min(failures_ + 1, kExchangeDoublingsMax);
    end(now);
  }
}

/// The next exchange may begin at once.
void Exchange::stop() {
  if (fleet_.find(under_way_->server) != nullptr) {
    fleet_.set_gives_way(under_way_->server, false);
  }
  under_way_.reset();
}

void Exchange::end(Instant now) {
  stop();
  due_ = now + options_.back_to_spot_after * (std::int64_t{1} << failures_);
}

std::optional<Instant> Exchange::next_wake(Instant now) const {
  if (under_way_) {
    for (const auto& [id, server] : fleet_.servers()) {
      if (server.request_id == under_way_->request_id && server.member) {
        return fleet_.at_work_by(server);
      }
    }
    return std::nullopt;
  }
  const std::optional<Possible> best = find();
  if (!best) {
    return std::nullopt;
  }
  return best->due > now ? best->due : now + kPoorRetry;  // due, but the budget does not allow it
}

/// Whether the server is on demand, or, with a composition, of an offer that has too many servers.
bool Exchange::may_give_way(const Fleet::Server& server) const {
  if (server.stage != Fleet::Stage::kWorking || !server.member || !server.offer ||
      fleet_.is_irreplaceable(server) || fleet_.is_for_evaluator(server)) {
    return false;
  }
  return catalog_.has_composition()
             ? demand_.present(*server.offer) > demand_.composed()[*server.offer]
             : fleet_.is_on_demand(server);
}

/// Whether an offer is on spot and much cheaper for the same speed.
bool Exchange::is_better(std::size_t offer, std::size_t than) const {
  const OfferTerms& terms = catalog_.terms(offer);
  return terms.offer.market == Market::kSpot && !terms.for_evaluator &&
         catalog_.price_per_speed(offer) <= kWorthIt * catalog_.price_per_speed(than);
}

/// An exchange that may begin at `due` if no event happens before.
std::optional<Exchange::Possible> Exchange::find() const {
  if (options_.back_to_spot_after <= Duration(0) || !requests_.empty() ||
      demand_.staying() != demand_.target() ||
      (!catalog_.has_composition() && demand_.on_demand_present() <= demand_.on_demand_floor())) {
    return std::nullopt;
  }
  const auto rank = [this](const Possible& one) {
    const Fleet::Server& server = *fleet_.find(one.server);
    return std::tuple(one.due, catalog_.price_per_speed(one.offer),
                      -catalog_.price_per_speed(*server.offer), -std::int64_t{server.order});
  };
  const std::vector<std::uint32_t> lacking = demand_.lacking();
  std::optional<Possible> best;
  for (const auto& [id, server] : fleet_.servers()) {
    for (std::size_t offer = 0; may_give_way(server) && offer < catalog_.size(); ++offer) {
      const std::optional<Instant> calm = catalog_.calm_from(offer, options_.back_to_spot_after);
      const bool is_worth_it =
          catalog_.has_composition() ? lacking[offer] > 0 : is_better(offer, *server.offer);
      if (!calm || !is_worth_it) {
        continue;
      }
      const Possible one{id, offer,
                         std::max({*calm, due_, server.seen + options_.back_to_spot_after})};
      best = !best || rank(one) < rank(*best) ? one : *best;
    }
  }
  return best;
}

}  // namespace mayfly::cloud_hooks
