#include "cloud_hooks/core/provisioner.hpp"

#include <algorithm>
#include <vector>

namespace mayfly::cloud_hooks {

Provisioner::Provisioner(const ReplacementOptions& options, OfferCatalog& catalog,
                         const Budget& budget, const Demand& demand, const Fleet& fleet,
                         Shortage& shortage, EffectList& effects, OpenRequests& requests)
    : options_(options),
      catalog_(catalog),
      budget_(budget),
      demand_(demand),
      fleet_(fleet),
      shortage_(shortage),
      effects_(effects),
      requests_(requests) {}

void Provisioner::request_missing(Instant now, bool knows_earlier_servers) {
  const std::uint32_t workers = demand_.workers_missing();
  const std::uint32_t evaluators = demand_.evaluators_missing();
  const std::uint32_t missing = workers + evaluators;
  if (missing == 0) {
    shortage_.over();
    return;
  }
  if (!knows_earlier_servers || !shortage_.is_gathered(now)) {
    return;
  }
  shun_bursts(now);
  const std::uint32_t for_workers = request_workers(now, workers);
  // Last: workers have priority in the budget.
  const std::uint32_t for_evaluators = request_up_to(now, evaluators, [this](std::size_t offer) {
    return catalog_.terms(offer).for_evaluator ? options_.evaluators : 0;
  });
  const std::uint32_t requested = for_workers + for_evaluators;
  if (requested > 0) {
    shortage_.some_requested();
  }
  if (requested == missing || (requested > 0 && requests_.may_send())) {
    shortage_.all_requested();
  }
  if (requested < missing && requests_.may_send() && shortage_.may_report()) {
    note_exhausted(now, missing - requested, for_workers < workers);
  }
}

std::optional<Instant> Provisioner::next_wake(Instant now) const {
  const std::optional<Instant> gathered_at = shortage_.gathered_at();
  return gathered_at && *gathered_at <= now ? catalog_.next_change(now) : gathered_at;
}

/// Requests first the servers that are missing to the composition, or to the floor of on-demand
/// servers, then servers of any offer. Returns how many were requested.
std::uint32_t Provisioner::request_workers(Instant now, std::uint32_t missing) {
  std::uint32_t requested = 0;
  if (catalog_.has_composition()) {
    const std::vector<std::uint32_t> lacking = demand_.lacking();
    requested = request_up_to(now, missing, [&](std::size_t offer) { return lacking[offer]; });
  } else {
    const std::uint32_t present = demand_.on_demand_present();
    const std::uint32_t floor = demand_.on_demand_floor();
    const std::uint32_t below_floor = std::min(missing, floor - std::min(floor, present));
    requested = request_up_to(now, below_floor, [&](std::size_t offer) {
      const OfferTerms& terms = catalog_.terms(offer);
      return terms.offer.market == Market::kOnDemand && !terms.for_evaluator ? missing : 0;
    });
  }
  return requested + request_up_to(now, missing - requested, [&](std::size_t offer) {
           return catalog_.terms(offer).for_evaluator ? 0 : missing;
         });
}

std::uint32_t Provisioner::request_up_to(Instant now, std::uint32_t wanted, const MostOf& most_of) {
  std::uint32_t requested = 0;
  for (const std::size_t offer : catalog_.ranking(now)) {
    std::uint32_t here = affordable(now, offer, std::min(wanted - requested, most_of(offer)));
    while (here > 0 && requests_.may_send()) {
      const std::uint32_t count =
          std::min({here, options_.provider.count_max, catalog_.most_at_once(offer)});
      request(now, offer, count);
      here -= count;
      requested += count;
    }
  }
  return requested;
}

std::uint32_t Provisioner::affordable(Instant now, std::size_t offer, std::uint32_t wanted) const {
  return budget_.affordable(now, catalog_.terms(offer).price_per_hour,
                            std::min(wanted, demand_.room(offer)));
}

std::string Provisioner::request(Instant now, std::size_t offer, std::uint32_t count) {
  const Duration lifetime = budget_.lifetime(now, catalog_.terms(offer).price_per_hour);
  return requests_.send(now, offer, count, lifetime, shortage_.first_loss());
}

/// An offer that has lost many servers at once, and has few left, is used last for a while.
void Provisioner::shun_bursts(Instant now) {
  for (const auto& [offer, lost] : shortage_.lost()) {
    if (lost >= kBurstLeast && lost >= fleet_.working(offer)) {
      catalog_.shun(offer, now + options_.shun_after_burst);
    }
  }
}

void Provisioner::note_exhausted(Instant now, std::uint32_t missing, bool lacks_workers) {
  std::vector<std::size_t> possible = catalog_.ranking(now);
  std::erase_if(possible, [&](std::size_t offer) {
    return catalog_.terms(offer).for_evaluator == lacks_workers;
  });
  const bool has_room =
      std::ranges::any_of(possible, [this](std::size_t offer) { return demand_.room(offer) > 0; });
  effects_.note(has_room ? "budget" : "offers_exhausted",
                std::to_string(missing) + " of " +
                    std::to_string(demand_.target() + options_.evaluators) + " servers missing: " +
                    (has_room                 ? "the budget allows no more servers"
                     : catalog_.all_stopped() ? "every offer is stopped or at its quota"
                     : !possible.empty() ? "the offers have as many servers as their limits allow"
                                         : "every offer was refused; requested again later"));
}

}  // namespace mayfly::cloud_hooks
