#include "planner/search/scenario.hpp"

namespace mayfly::planner {

Market changed(const Market& market, const Scenario& scenario) {
  Market other = market;
  for (OfferModel& offer : other.offers) {
    offer.price_per_hour *= scenario.price_factor;
    offer.lifetime = offer.lifetime.scaled(scenario.hazard_factor);
    offer.start_up = scenario.start_up_s ? QuantileTable({*scenario.start_up_s})
                                         : offer.start_up.scaled(scenario.start_up_factor);
  }
  for (ZoneModel& zone : other.zones) {
    zone.shocks = zone.shocks.scaled(scenario.hazard_factor);
  }
  return other;
}

JobModel changed(const JobModel& job, const Scenario& scenario) {
  JobModel other = job;
  other.recovery_s = scenario.recovery_s.value_or(job.recovery_s);
  return other;
}

}  // namespace mayfly::planner
