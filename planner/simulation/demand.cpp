#include "planner/simulation/demand.hpp"

namespace mayfly::planner {
namespace {

std::uint32_t beyond(std::uint32_t wanted, std::uint32_t present) {
  return wanted - std::min(wanted, present);
}

}  // namespace

Demand::Demand(const CandidateOffers& offers, const Candidate& candidate,
               const cloud_hooks::OfferCatalog& catalog, const PathServers& servers)
    : offers_(offers),
      servers_(servers),
      target_(candidate.workers + candidate.spares),
      candidate_floor_(candidate.on_demand_floor),
      has_composition_(catalog.has_composition()),
      wanted_(catalog.wanted_of(target_)),
      floor_(candidate_floor_) {}

std::uint32_t Demand::missing(std::uint32_t coming) const {
  return beyond(target_, servers_.present() + coming);
}

std::uint32_t Demand::lacking(std::size_t offer, std::uint32_t coming) const {
  return beyond(wanted_[offer], servers_.present(offer) + coming);
}

std::uint32_t Demand::lacking_on_demand(std::uint32_t coming) const {
  return beyond(floor(), servers_.on_demand_present() + coming);
}

bool Demand::may_give_way(std::size_t offer) const {
  return has_composition_ ? servers_.present(offer) > wanted_[offer]
                          : offers_.is_on_demand(offer) && servers_.on_demand_present() > floor();
}

}  // namespace mayfly::planner
