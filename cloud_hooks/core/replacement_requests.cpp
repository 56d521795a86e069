// The part of ReplacementPolicy that requests servers, computes their possible cost, and takes the
// answers.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr Duration kLifetimeLeast = seconds(60);  // what clouds bill at least

double hours(Duration duration) {
  return to_seconds(duration) / kSecondsPerHour;
}

Duration from_hours(double count) {
  constexpr double kCenturyHours = 876'000;
  return Duration(
      static_cast<std::int64_t>(std::clamp(count, 0.0, kCenturyHours) * kSecondsPerHour * 1e9));
}

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
  const std::uint32_t allowed = std::min(wanted, room(offer));
  if (price <= 0) {
    return allowed;
  }
  double most = allowed;
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
  const std::uint32_t asked_for_work = ask_for_workers(now, missing);
  // Last: workers have priority in the budget.
  const std::uint32_t asked =
      asked_for_work + ask(now, evaluators, [this](std::size_t offer) {
        return catalog_.terms(offer).for_evaluator ? options_.evaluators : 0;
      });
  const std::uint32_t wanted = missing + evaluators;
  if (asked > 0) {
    losses_.clear();
  }
  if (asked == wanted || (asked > 0 && may_send())) {
    first_loss_.reset();
  }
  if (asked < wanted && may_send() && !told_exhausted_) {
    tell_exhausted(now, wanted - asked, asked_for_work < missing);
  }
}

void ReplacementPolicy::tell_exhausted(Instant now, std::uint32_t missing, bool lacks_workers) {
  told_exhausted_ = true;
  std::vector<std::size_t> possible = catalog_.ranking(now);
  std::erase_if(possible, [&](std::size_t offer) {
    return catalog_.terms(offer).for_evaluator == lacks_workers;
  });
  const bool has_room =
      std::ranges::any_of(possible, [this](std::size_t offer) { return room(offer) > 0; });
  tell(has_room ? "budget" : "offers_exhausted",
       std::to_string(missing) + " of " + std::to_string(target_ + options_.evaluators) +
           " servers missing: " +
           (has_room                 ? "the budget allows no more servers"
            : catalog_.all_stopped() ? "every offer is stopped or at its quota"
            : !possible.empty()      ? "the offers have as many servers as their limits allow"
                                     : "every offer was refused; asking again later"));
}

/// First what the composition lacks, or what the floor of servers on demand does; then whatever
/// there is. Returns how many were asked for.
std::uint32_t ReplacementPolicy::ask_for_workers(Instant now, std::uint32_t missing) {
  const std::uint32_t present = on_demand_present();
  const std::uint32_t floor = std::min(options_.on_demand_floor, target_);
  const std::uint32_t on_demand = std::min(missing, floor > present ? floor - present : 0);
  std::uint32_t asked = 0;
  if (catalog_.has_composition()) {
    const std::vector<std::uint32_t> lacking_now = lacking();
    asked = ask(now, missing, [&](std::size_t offer) { return lacking_now[offer]; });
  } else {
    asked = ask(now, on_demand, [&](std::size_t offer) {
      const OfferTerms& terms = catalog_.terms(offer);
      return terms.offer.market == Market::kOnDemand && !terms.for_evaluator ? missing : 0;
    });
  }
  return asked + ask(now, missing - asked, [&](std::size_t offer) {
           return catalog_.terms(offer).for_evaluator ? 0 : missing;
         });
}

/// By offer: what the composition wants beyond what is present.
std::vector<std::uint32_t> ReplacementPolicy::lacking() const {
  std::vector<std::uint32_t> counts = catalog_.wanted_of(target_);
  for (std::size_t offer = 0; offer < counts.size(); ++offer) {
    counts[offer] -= std::min(counts[offer], present(offer));
  }
  return counts;
}

/// Servers that the offer's own limit still allows.
std::uint32_t ReplacementPolicy::room(std::size_t offer) const {
  const std::uint32_t most = catalog_.terms(offer).workers_most;
  return most == 0 ? std::numeric_limits<std::uint32_t>::max()
                   : most - std::min(most, present(offer));
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

std::uint32_t ReplacementPolicy::ask(Instant now, std::uint32_t wanted, const MostOf& most_of) {
  std::uint32_t asked = 0;
  for (const std::size_t offer : catalog_.ranking(now)) {
    std::uint32_t here = affordable(now, offer, std::min(wanted - asked, most_of(offer)));
    while (here > 0 && may_send()) {
      const std::uint32_t count =
          std::min({here, options_.provider.count_max, catalog_.most_at_once(offer)});
      send_request(now, offer, count);
      here -= count;
      asked += count;
    }
  }
  return asked;
}

/// Whether fewer requests wait for their answers than may. A request that waits for another one
/// would be billed meanwhile, and could not be withdrawn.
bool ReplacementPolicy::may_send() const {
  const auto open = std::ranges::count_if(pending_, [](const auto& entry) {
    return !entry.second.repeat_at && !entry.second.unsettled;
  });
  return options_.requests_at_once == 0 || std::cmp_less(open, options_.requests_at_once);
}

/// Returns its id.
std::string ReplacementPolicy::send_request(Instant now, std::size_t offer, std::uint32_t count) {
  const OfferTerms& terms = catalog_.terms(offer);
  Pending pending;
  pending.request.request_id = make_request_id(random_, requests_made_++);
  // At its end, as its beginning may be part of a server's name.
  std::string& text = pending.request.request_id;
  text.replace(text.size() - options_.job_mark.size(), std::string::npos, options_.job_mark);
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

// --- Answers ---

void ReplacementPolicy::on(Instant now, const policy_event::Answered& event) {
  const auto found = pending_.find(event.request_id);
  Pending* pending = found == pending_.end() ? nullptr : &found->second;
  for (const ServerStatus& status : event.outcome.servers) {
    if (status.alive() && !servers_.contains(status.id)) {
      track(now, status, pending);
    } else if (!status.alive() && !servers_.contains(status.id) && pending != nullptr) {
      granted_and_gone(now, status, *pending);
    }
  }
  if (pending == nullptr) {
    return;  // answered, or given up and settled by a list, long ago
  }
  if (event.outcome.error) {
    if (event.outcome.error->kind != ProviderErrorKind::kRate && pending->repeats == 0) {
      drop_never_made(event);
    }
    refused(now, *pending, *event.outcome.error);
    return;
  }
  if (pending->missing() > 0) {
    (void)catalog_.out_of_stock(pending->offer, now, {});
    tell("server_refused",
         "fewer than asked for of " + to_string(catalog_.terms(pending->offer).offer));
  }
  forget(event.request_id);
}

/// A list that was taken before the request had failed may show servers that were not made after
/// all. Of a request that was repeated they may be what an earlier attempt has made.
void ReplacementPolicy::drop_never_made(const policy_event::Answered& answer) {
  std::erase_if(servers_, [&](const auto& entry) {
    const auto& [id, server] = entry;
    const bool is_made = server.runs || server.member ||
                         std::ranges::find(answer.outcome.servers, id, &ServerStatus::id) !=
                             answer.outcome.servers.end();
    if (is_made || server.request_id != answer.request_id) {
      return false;
    }
    bill_.drop(id);
    tell("server_ended", describe(server) + ": it was not made after all", id, 0.0);
    return true;
  });
}

void ReplacementPolicy::refused(Instant now, Pending& pending, const ProviderError& error) {
  if (error.kind == ProviderErrorKind::kRate) {
    unanswered(now, pending, error);
    return;
  }
  const std::string what = to_string(catalog_.terms(pending.offer).offer);
  tell("server_refused", std::string(to_string(error.kind)) + ": " + what + ": " + error.detail);
  switch (error.kind) {
    case ProviderErrorKind::kCapacity:
      (void)catalog_.out_of_stock(pending.offer, now, error);
      break;
    case ProviderErrorKind::kQuota: quota_refused(now, pending, error); break;
    case ProviderErrorKind::kAuth:
    case ProviderErrorKind::kConfig:
      catalog_.stop(pending.offer);
      tell("offer_stopped", what +
                                ": not asked for any more until `mayfly scale`; `mayfly cloud "
                                "doctor` may say what is missing");
      break;
    case ProviderErrorKind::kRate: break;
  }
  forget(pending.request.request_id);
}

/// Some providers refuse all servers of a request if the quota does not suffice for each of them.
void ReplacementPolicy::quota_refused(Instant now, const Pending& pending,
                                      const ProviderError& error) {
  if (pending.servers.empty() && pending.request.count > 1) {
    catalog_.quota_refused(pending.offer, pending.request.count);
    return;
  }
  const bool has_some = std::ranges::any_of(servers_, [&](const auto& entry) {
    return entry.second.offer && catalog_.share_quota(*entry.second.offer, pending.offer);
  });
  if (!has_some) {  // others use it up, and do not say when they end
    catalog_.quota_freed(pending.offer);
    (void)catalog_.out_of_stock(pending.offer, now, error);
  } else if (catalog_.quota_reached(pending.offer)) {
    tell("offer_stopped", to_string(catalog_.terms(pending.offer).offer) +
                              ": our quota is reached; asked for again when a server like "
                              "it has ended, or on `mayfly scale`");
  }
}

/// Nobody knows whether servers were started, so their possible cost stays on the bill. The same
/// request is repeated, which starts only those that are missing; after that the list of servers
/// settles it.
void ReplacementPolicy::unanswered(Instant now, Pending& pending, const ProviderError& error) {
  if (pending.unsettled) {
    return;
  }
  if (pending.repeats == 0) {
    tell("server_refused", "rate: " + to_string(catalog_.terms(pending.offer).offer) + ": " +
                               error.detail + "; the same request will be repeated");
  }
  if (pending.repeats >= options_.repeats_max || is_closing_) {
    pending.repeat_at.reset();
    pending.unsettled = now;
    (void)catalog_.out_of_stock(pending.offer, now, error);
    list_due_ = std::min(list_due_, now + options_.absence_grace);
    tell("server_refused", to_string(catalog_.terms(pending.offer).offer) +
                               ": no answer; what became of the request will be seen in the list "
                               "of servers");
    return;
  }
  const Duration doubled = options_.rate_wait * (std::int64_t{1} << std::min(pending.repeats, 20));
  const Duration wait = std::min(doubled, options_.rate_wait_max);
  ++pending.repeats;
  pending.repeat_at = now + std::max(wait, std::min(error.retry_after.value_or(Duration(0)),
                                                    10 * options_.rate_wait_max));
}

void ReplacementPolicy::forget(const std::string& request_id) {
  const auto found = pending_.find(request_id);
  bill_.drop(billing_item(found->second));
  pending_.erase(found);
}

}  // namespace mayfly::cloud_hooks
