// The part of ReplacementPolicy that requests servers and computes their possible cost, and that
// returns to spot servers: an on-demand server that was used for lack of a spot server is exchanged
// for a spot server that is much cheaper for its speed.
//
// One server is exchanged at a time, and only if all workers are running, no request is open, and
// the spot offer has refused nothing for a while. The spot server is requested first, and the
// on-demand server leaves at a boundary when the worker of its successor has computed
// something, so the exchange never lowers the number of workers. In between the on-demand server
// does not count as one that stays. If anything goes wrong it stays, and the next attempt comes
// later.

#include <algorithm>
#include <cmath>
#include <tuple>

#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr Duration kLifetimeLeast = seconds(60);  // what clouds bill at least
constexpr std::uint32_t kBurstLeast = 2;          // losses of one offer in a batch

double hours(Duration duration) {
  return to_seconds(duration) / kSecondsPerHour;
}

Duration from_hours(double count) {
  constexpr double kCenturyHours = 876'000;
  return Duration(
      static_cast<std::int64_t>(std::clamp(count, 0.0, kCenturyHours) * kSecondsPerHour * 1e9));
}

// An exchange costs some steps at a lower speed, so a slightly better price is not worth it.
constexpr double kWorthIt = 0.8;  // of the price for the same speed
constexpr int kDoublingsMax = 4;

}  // namespace

// --- Money ---

void ReplacementPolicy::watch_budget(Instant now) {
  if (!options_.budget || ended_) {
    return;
  }
  const double spent = bill_.spent(now);
  const double per_hour = bill_.per_hour();
  if (!budget_stopped_ && per_hour > 0 &&
      spent + per_hour * hours(options_.stop_margin) >= *options_.budget) {
    budget_stopped_ = true;
    tell("budget",
         "the budget is nearly used up: the job stops with a checkpoint, then every "
         "server is released");
    effects_.emplace_back(policy_effect::StopJob{"the budget is used up"});
  }
  budget_is_over_ =
      budget_is_over_ || spent + per_hour * hours(options_.release_margin) >= *options_.budget;
}

std::uint32_t ReplacementPolicy::affordable(Instant now, std::size_t offer,
                                            std::uint32_t wanted) const {
  constexpr double kRounding = 1e-9;
  const double price = catalog_.terms(offer).price_per_hour;
  if (price <= 0) {
    return wanted;
  }
  double most = wanted;
  if (options_.budget_per_hour) {
    most = std::min(most, (*options_.budget_per_hour - bill_.per_hour()) / price + kRounding);
  }
  if (options_.budget) {
    // A server that would have to end before it has computed anything is not requested.
    const Duration useful = options_.stop_margin + options_.billed_at_least;
    const double left = *options_.budget - bill_.spent(now) - bill_.per_hour() * hours(useful);
    most = std::min(most, left / (price * hours(useful + options_.billed_at_least)));
  }
  return most < 1 ? 0 : static_cast<std::uint32_t>(std::floor(most));
}

/// The lifetime for a new server: short enough that even one that cannot be reached any more stays
/// within the budget.
Duration ReplacementPolicy::lifetime_of(Instant now, std::size_t offer) const {
  Duration lifetime = options_.lifetime_max;
  const double price = catalog_.terms(offer).price_per_hour;
  if (options_.budget && price > 0) {
    const Duration paid_for = from_hours((*options_.budget - bill_.spent(now)) / price);
    lifetime = lifetime == Duration(0) ? paid_for : std::min(lifetime, paid_for);
    lifetime = std::max(lifetime, kLifetimeLeast);
  }
  return std::chrono::duration_cast<seconds>(lifetime);
}

/// The next time at which watch_budget() has to act, if nothing changes before.
std::optional<Instant> ReplacementPolicy::next_budget_alarm(Instant now) const {
  const double per_hour = bill_.per_hour();
  if (!options_.budget || per_hour <= 0 || budget_is_over_ || ended_) {
    return std::nullopt;
  }
  const Duration left = from_hours((*options_.budget - bill_.spent(now)) / per_hour);
  return now + left - (budget_stopped_ ? options_.release_margin : options_.stop_margin);
}

// --- Too few ---

void ReplacementPolicy::repeat_requests(Instant now) {
  for (auto& [id, pending] : pending_) {
    if (!pending.repeat_at) {
      continue;
    }
    if (is_closing_ || budget_stopped_) {  // not repeated, but it may have been received
      pending.repeat_at.reset();
      pending.unsettled = now;
      list_due_ = std::min(list_due_, now + options_.absence_grace);
    } else if (*pending.repeat_at <= now) {
      pending.repeat_at.reset();
      effects_.emplace_back(policy_effect::Request{pending.request, true, {}});
    }
  }
}

void ReplacementPolicy::ask_for_missing(Instant now) {
  const std::uint32_t have = staying() + coming();
  const std::uint32_t evaluators = evaluators_missing();
  if ((have >= target_ && evaluators == 0) || is_closing_ || budget_stopped_) {
    gather_until_.reset();
    first_loss_.reset();
    losses_.clear();
    told_exhausted_ = false;
    return;
  }
  if (!may_ask_) {
    return;
  }
  if (!gather_until_) {
    gather_until_ = first_loss_ ? std::max(now, *first_loss_ + options_.gather) : now;
  }
  if (now < *gather_until_) {
    return;
  }
  shun_bursts(now);
  const std::uint32_t missing = target_ - std::min(target_, have);
  const std::uint32_t present = on_demand_present();
  const std::uint32_t floor = std::min(options_.on_demand_floor, target_);
  const std::uint32_t on_demand = std::min(missing, floor > present ? floor - present : 0);
  std::uint32_t asked = ask(now, on_demand, Purpose::kWorkOnDemand);
  asked += ask(now, missing - asked, Purpose::kWork);
  const std::uint32_t asked_for_work = asked;
  asked += ask(now, evaluators, Purpose::kEvaluate);  // last: workers have priority in the budget
  const std::uint32_t wanted = missing + evaluators;
  if (asked > 0) {
    first_loss_.reset();
    losses_.clear();
  }
  if (asked < wanted && !told_exhausted_) {
    told_exhausted_ = true;
    const bool lacks_workers = asked_for_work < missing;
    const std::vector<std::size_t> possible = catalog_.ranking(now);
    const bool is_money = std::ranges::any_of(possible, [&](std::size_t offer) {
      return catalog_.terms(offer).for_evaluator != lacks_workers;
    });
    tell(is_money ? "budget" : "offers_exhausted",
         std::to_string(wanted - asked) + " of " + std::to_string(target_ + options_.evaluators) +
             " servers missing: " +
             (is_money                 ? "the budget allows no more servers"
              : catalog_.all_stopped() ? "every offer is stopped or at its quota"
                                       : "every offer was refused; asking again later"));
  }
}

void ReplacementPolicy::shun_bursts(Instant now) {
  for (const auto& [offer, lost] : losses_) {
    std::uint32_t kept = 0;
    for (const auto& [id, server] : servers_) {
      kept += server.offer == offer && server.stage == Stage::kWorking ? 1 : 0;
    }
    if (lost >= kBurstLeast && lost >= kept) {
      catalog_.shun(offer, now + options_.shun_after_burst);
    }
  }
}

std::uint32_t ReplacementPolicy::ask(Instant now, std::uint32_t wanted, Purpose purpose) {
  std::uint32_t asked = 0;
  for (const std::size_t offer : catalog_.ranking(now)) {
    const OfferTerms& terms = catalog_.terms(offer);
    if (terms.for_evaluator != (purpose == Purpose::kEvaluate) ||
        (purpose == Purpose::kWorkOnDemand && terms.offer.market != Market::kOnDemand)) {
      continue;
    }
    std::uint32_t here = affordable(now, offer, wanted - asked);
    asked += here;
    while (here > 0) {
      const std::uint32_t count = std::min(here, options_.provider.count_max);
      send_request(now, offer, count);
      here -= count;
    }
  }
  return asked;
}

/// Returns its id.
std::string ReplacementPolicy::send_request(Instant now, std::size_t offer, std::uint32_t count) {
  const OfferTerms& terms = catalog_.terms(offer);
  Pending pending;
  pending.request.request_id = make_request_id(random_, requests_made_++);
  pending.request.count = count;
  pending.request.offer = terms.offer;
  pending.request.labels = options_.labels;
  pending.request.lifetime_max = lifetime_of(now, offer);
  pending.request.startup_text = options_.startup_text;
  pending.offer = offer;
  pending.sent = pending.looked = now;
  bill_.open(billing_item(pending), terms.price_per_hour * count, now);
  effects_.emplace_back(policy_effect::Request{pending.request, false, first_loss_});
  std::string id = pending.request.request_id;
  pending_.emplace(id, std::move(pending));
  return id;
}

bool ReplacementPolicy::is_exchanged(const std::string& id) const {
  return exchange_ && exchange_->server == id;
}

/// Whether the server's worker computes. If no speeds are reported at all, a waiting time decides.
bool ReplacementPolicy::is_at_work(Instant now, const Server& server) const {
  if (server.stage != Stage::kWorking || !server.member) {
    return false;
  }
  const MemberInfo& member = members_.at(*server.member);
  return member.is_measured || now >= member.joined + options_.join_timeout;
}

void ReplacementPolicy::watch_exchange(Instant now) {
  if (!exchange_) {
    begin_exchange(now);
    return;
  }
  const auto old = servers_.find(exchange_->server);
  if (is_closing_ || budget_stopped_ || old == servers_.end() ||
      old->second.stage != Stage::kWorking) {
    exchange_.reset();  // the on-demand server is gone, and the spot server replaces it
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
      tell("server_given_up", describe(old->second) + ": " + id + " does the same for less",
           old->first);
      let_go(now, old->first);
      return;
    }
    is_awaited = is_awaited || server.stays();
  }
  const auto pending = pending_.find(exchange_->request_id);
  is_awaited = is_awaited || (pending != pending_.end() && !pending->second.unsettled);
  if (!is_awaited) {
    exchange_failures_ = std::min(exchange_failures_ + 1, kDoublingsMax);
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
  tell("back_to_spot",
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

/// An exchange that may begin at `due` if no event happens before.
std::optional<ReplacementPolicy::PossibleExchange> ReplacementPolicy::find_exchange() const {
  const std::uint32_t floor = std::min(options_.on_demand_floor, target_);
  if (options_.back_to_spot_after <= Duration(0) || exchange_ || !may_ask_ || is_closing_ ||
      budget_stopped_ || first_loss_ || !pending_.empty() || staying() != target_ ||
      on_demand_present() <= floor) {
    return std::nullopt;
  }
  std::optional<PossibleExchange> best;
  for (const auto& [id, server] : servers_) {
    const bool may_go = server.stage == Stage::kWorking && server.member && server.offer &&
                        !is_irreplaceable(server) && !is_for_evaluator(server) &&
                        catalog_.terms(*server.offer).offer.market == Market::kOnDemand;
    for (std::size_t offer = 0; may_go && offer < catalog_.size(); ++offer) {
      const std::optional<Instant> calm = catalog_.calm_from(offer, options_.back_to_spot_after);
      const bool is_worth_it =
          catalog_.terms(offer).offer.market == Market::kSpot &&
          !catalog_.terms(offer).for_evaluator &&
          catalog_.price_per_speed(offer) <= kWorthIt * catalog_.price_per_speed(*server.offer);
      if (!calm || !is_worth_it) {
        continue;
      }
      const PossibleExchange one{
          id, offer, std::max({*calm, exchange_due_, server.seen + options_.back_to_spot_after})};
      const auto rank = [&](const PossibleExchange& e) {
        return std::tuple(e.due, catalog_.price_per_speed(e.offer),
                          -catalog_.price_per_speed(*servers_.at(e.server).offer));
      };
      best = !best || rank(one) < rank(*best) ? one : *best;
    }
  }
  return best;
}

}  // namespace mayfly::cloud_hooks
