#include "cloud_hooks/core/demand.hpp"

#include <algorithm>
#include <limits>

namespace mayfly::cloud_hooks {

Demand::Demand(const ReplacementOptions& options, const OfferCatalog& catalog, const Fleet& fleet,
               const OpenRequests& requests)
    : options_(options), catalog_(catalog), fleet_(fleet), requests_(requests) {
  set_target(options.target);
}

void Demand::set_target(std::uint32_t target) {
  target_ = std::clamp(target, 1U, options_.max);
}

std::uint32_t Demand::staying_or_coming() const {
  return fleet_.staying() + requests_.coming_for_workers();
}

std::uint32_t Demand::workers_missing() const {
  return target_ - std::min(target_, staying_or_coming());
}

std::uint32_t Demand::evaluators_missing() const {
  const std::uint32_t have = fleet_.staying_for_evaluators() + requests_.coming_for_evaluators();
  return options_.evaluators - std::min(options_.evaluators, have);
}

std::uint32_t Demand::present(std::size_t offer) const {
  return fleet_.present(offer) + requests_.coming_of(offer);
}

std::uint32_t Demand::room(std::size_t offer) const {
  const std::uint32_t most = catalog_.terms(offer).workers_most;
  return most == 0 ? std::numeric_limits<std::uint32_t>::max()
                   : most - std::min(most, present(offer));
}

std::uint32_t Demand::on_demand_present() const {
  std::uint32_t count = 0;
  for (std::size_t offer = 0; offer < catalog_.size(); ++offer) {
    const OfferTerms& terms = catalog_.terms(offer);
    const bool counts = terms.offer.market == Market::kOnDemand && !terms.for_evaluator;
    count += counts ? present(offer) : 0;
  }
  return count;
}

std::uint32_t Demand::on_demand_floor() const {
  return std::min(options_.on_demand_floor, target_);
}

std::vector<std::uint32_t> Demand::composed() const {
  return catalog_.wanted_of(target_);
}

std::vector<std::uint32_t> Demand::lacking() const {
  std::vector<std::uint32_t> counts = composed();
  for (std::size_t offer = 0; offer < counts.size(); ++offer) {
    counts[offer] -= std::min(counts[offer], present(offer));
  }
  return counts;
}

}  // namespace mayfly::cloud_hooks
