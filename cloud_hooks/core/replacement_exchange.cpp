// The part of ReplacementPolicy that exchanges a server that was only used for lack of another one:
// one on demand for a spot server that is much cheaper for its speed, or, with a composition, one
// of an offer that has more servers than it wants for one of an offer that has fewer.
//
// One server is exchanged at a time, and only if all workers are running, no request is open, and
// the other offer has refused nothing for a while. The new server is requested first, and the old
// one leaves at a boundary when the worker of its successor has computed something, so the exchange
// never lowers the number of workers. In between the old server does not count as one that stays.
// If anything goes wrong it stays, and the next attempt comes later.

#include <algorithm>
#include <tuple>

#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks {

bool ReplacementPolicy::is_exchanged(const std::string& id) const {
  return exchange_ && exchange_->server == id;
}

/// Whether the server's worker computes. If no speeds are reported at all, a waiting time decides.
bool ReplacementPolicy::is_at_work(Instant now, const Server& server) const {
  if (server.stage != Stage::kWorking || !server.member) {
    return false;
  }
  const MemberInfo& member = members_.at(*server.member);
  return member.speed > 0 || now >= member.joined + options_.join_timeout;
}

void ReplacementPolicy::watch_exchange(Instant now) {
  if (!exchange_) {
    begin_exchange(now);
    return;
  }
  const auto old = servers_.find(exchange_->server);
  if (is_closing_ || budget_stopped_ || old == servers_.end() ||
      old->second.stage != Stage::kWorking) {
    exchange_.reset();  // it is gone, and its successor replaces it
    return;
  }
  bool is_awaited = false;
  for (const auto& [id, server] : servers_) {
    if (server.request_id != exchange_->request_id) {
      continue;
    }
    if (is_at_work(now, server)) {
      exchange_failures_ = 0;
      end_exchange(now);
      tell("server_given_up",
           describe(old->second) + ": " + id +
               (catalog_.has_composition() ? " is what the composition wants"
                                           : " does the same for less"),
           old->first);
      let_go(now, old->first);
      return;
    }
    is_awaited = is_awaited || server.stays();
  }
  const auto pending = pending_.find(exchange_->request_id);
  is_awaited = is_awaited || (pending != pending_.end() && !pending->second.unsettled);
  if (!is_awaited) {
    exchange_failures_ = std::min(exchange_failures_ + 1, kExchangeDoublingsMax);
    end_exchange(now);
  }
}

void ReplacementPolicy::end_exchange(Instant now) {
  exchange_.reset();
  exchange_due_ = now + options_.back_to_spot_after * (std::int64_t{1} << exchange_failures_);
}

void ReplacementPolicy::begin_exchange(Instant now) {
  const std::optional<PossibleExchange> best = find_exchange();
  if (!best || best->due > now || affordable(now, best->offer, 1) == 0) {
    return;
  }
  tell(catalog_.has_composition() ? "back_to_composition" : "back_to_spot",
       describe(servers_.at(best->server)) + " is to be exchanged for " +
           to_string(catalog_.terms(best->offer).offer),
       best->server);
  exchange_ = Exchange{best->server, send_request(now, best->offer, 1)};
}

std::optional<Instant> ReplacementPolicy::next_exchange_wake(Instant now) const {
  constexpr Duration kPoorRetry = seconds(60);
  if (exchange_) {
    for (const auto& [id, server] : servers_) {
      if (server.request_id == exchange_->request_id && server.member) {
        return members_.at(*server.member).joined + options_.join_timeout;
      }
    }
    return std::nullopt;
  }
  const std::optional<PossibleExchange> best = find_exchange();
  if (!best) {
    return std::nullopt;
  }
  return best->due > now ? best->due : now + kPoorRetry;  // due, but the budget does not allow it
}

/// Whether it is on demand, or of an offer that has more servers than the composition wants.
bool ReplacementPolicy::may_give_way(const Server& server) const {
  if (server.stage != Stage::kWorking || !server.member || !server.offer ||
      is_irreplaceable(server) || is_for_evaluator(server)) {
    return false;
  }
  return catalog_.has_composition()
             ? present(*server.offer) > catalog_.wanted_of(target_)[*server.offer]
             : is_on_demand(server);
}

/// Whether an offer is on spot and much cheaper for the same speed.
bool ReplacementPolicy::is_better(std::size_t offer, std::size_t than) const {
  const OfferTerms& terms = catalog_.terms(offer);
  return terms.offer.market == Market::kSpot && !terms.for_evaluator &&
         catalog_.price_per_speed(offer) <= kWorthIt * catalog_.price_per_speed(than);
}

/// An exchange that may begin at `due` if no event happens before.
std::optional<ReplacementPolicy::PossibleExchange> ReplacementPolicy::find_exchange() const {
  const std::uint32_t floor = std::min(options_.on_demand_floor, target_);
  if (options_.back_to_spot_after <= Duration(0) || exchange_ || !may_ask_ || is_closing_ ||
      budget_stopped_ || first_loss_ || !pending_.empty() || staying() != target_ ||
      (!catalog_.has_composition() && on_demand_present() <= floor)) {
    return std::nullopt;
  }
  const std::vector<std::uint32_t> lacking_now = lacking();
  std::optional<PossibleExchange> best;
  for (const auto& [id, server] : servers_) {
    for (std::size_t offer = 0; may_give_way(server) && offer < catalog_.size(); ++offer) {
      const std::optional<Instant> calm = catalog_.calm_from(offer, options_.back_to_spot_after);
      const bool is_worth_it =
          catalog_.has_composition() ? lacking_now[offer] > 0 : is_better(offer, *server.offer);
      if (!calm || !is_worth_it) {
        continue;
      }
      const PossibleExchange one{
          id, offer, std::max({*calm, exchange_due_, server.seen + options_.back_to_spot_after})};
      const auto rank = [&](const PossibleExchange& e) {
        return std::tuple(e.due, catalog_.price_per_speed(e.offer),
                          -catalog_.price_per_speed(*servers_.at(e.server).offer),
                          -std::int64_t{servers_.at(e.server).order});
      };
      best = !best || rank(one) < rank(*best) ? one : *best;
    }
  }
  return best;
}

}  // namespace mayfly::cloud_hooks
