#include "planner/runs/kept_plan.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "planner/estimate.hpp"
#include "planner/simulation/working_set.hpp"

namespace mayfly::planner {
namespace {

PlannedRange range_of(const Spread& spread) {
  return {spread.low, spread.median, spread.high};
}

/// The range with an additional spread of the logarithm.
PlannedRange spread_out(PlannedRange range, double log_sd) {
  const double factor = std::exp(kHalfOf90 * log_sd);
  return {range.low / factor, range.median, range.high * factor};
}

PlannedOffer planned_offer(const Market& market, const JobModel& job, std::size_t index) {
  const OfferModel& model = market.offers[index];
  PlannedOffer offer;
  offer.offer = cloud_hooks::to_string(model.offer);
  offer.machine = model.offer.machine_type;
  offer.price_per_hour = model.price_per_hour;
  for (const LifetimeTable::Knot& knot : model.lifetime.knots()) {
    offer.hazard.emplace_back(knot.age_s, knot.hazard);
  }
  if (model.lifetime.cap() < kNever) {
    offer.cap_s = model.lifetime.cap();
  }
  offer.hazard_log_sd = model.hazard_log_sd;
  if (is_spot(model) && model.zone < market.zones.size()) {
    offer.shocks_per_s = market.zones[model.zone].shocks.losses_per_s();
  }
  const auto at = [&model](double u) {
    return model.start_up.quantile(u) + model.join.quantile(u);
  };
  offer.start_s = spread_out({at(0.05), at(0.5), at(0.95)}, job.start_up_log_sd);
  return offer;
}

/// The speeds of 1, 2, ... workers on this offer, or, with a composition, of workers in its
/// proportions.
PlannedSpeeds planned_speeds(const Market& market, const JobModel& job, std::size_t index,
                             const Candidate& candidate, double work_per_step) {
  PlannedSpeeds speeds;
  speeds.machine = market.offers[index].offer.machine_type;
  const cloud_hooks::OfferCatalog catalog(terms_of(market, job, candidate), {});
  for (std::uint32_t count = 1; count <= candidate.workers; ++count) {
    std::vector<std::uint32_t> counts(market.machines, 0);
    const std::vector<std::uint32_t> wanted = catalog.wanted_of(count);
    for (std::size_t place = 0; place < wanted.size(); ++place) {
      counts[market.offers[candidate.offers[place]].machine] += wanted[place];
    }
    if (!catalog.has_composition()) {
      counts[market.offers[index].machine] = count;
    }
    speeds.steps_per_s.push_back(job.speed(counts) / work_per_step);
  }
  return speeds;
}

}  // namespace

LifetimeTable PlannedOffer::lifetime() const {
  std::vector<LifetimeTable::Knot> knots;
  for (const auto& [age_s, amount] : hazard) {
    knots.push_back({age_s, amount});
  }
  return LifetimeTable(std::move(knots), cap_s.value_or(kNever));
}

double KeptPlan::speed(const std::string& machine, int count) const {
  if (speeds.empty() || count <= 0) {
    return 0;
  }
  const auto found = std::ranges::find(speeds, machine, &PlannedSpeeds::machine);
  const std::vector<double>& known =
      found == speeds.end() ? speeds.front().steps_per_s : found->steps_per_s;
  const auto most = static_cast<int>(known.size());
  return known.at(static_cast<std::size_t>(std::min(count, most)) - 1) *
         std::max(1.0, static_cast<double>(count) / most);
}

PlannedRange KeptPlan::speed_range(const std::string& machine, int count) const {
  const double median = speed(machine, count);
  return spread_out({median, median, median}, speed_log_sd);
}

const PlannedOffer* KeptPlan::find_offer(const std::string& text) const {
  const auto found = std::ranges::find(offers, text, &PlannedOffer::offer);
  return found == offers.end() ? nullptr : &*found;
}

KeptPlan kept_plan(const Market& market, const JobModel& whole, const Row& row,
                   double work_per_step) {
  ENSURE(row.is_simulated, "only a simulated plan predicts times");
  const Candidate& candidate = row.candidate;
  const JobModel job = served(whole, candidate);
  KeptPlan plan;
  plan.plan = describe(market, candidate);
  plan.steps = job.work / work_per_step;
  plan.workers = candidate.workers;
  for (const std::size_t index : candidate.offers) {
    plan.offers.push_back(planned_offer(market, job, index));
    const std::string& machine = plan.offers.back().machine;
    if (std::ranges::find(plan.speeds, machine, &PlannedSpeeds::machine) == plan.speeds.end()) {
      plan.speeds.push_back(planned_speeds(market, job, index, candidate, work_per_step));
    }
  }
  plan.speed_log_sd = job.speed_log_sd;
  plan.recovery_s = job.recovery_s;
  plan.checkpoint_s = job.checkpoint_s;
  plan.checkpoint_every_s = candidate.checkpoint_every_s;
  const Summary& summary = row.summary;
  plan.time_s = range_of(summary.time_s);
  plan.cost = range_of(summary.cost);
  plan.losses = range_of(summary.taken);
  plan.starting_s = summary.starting_s;
  plan.missing_s = summary.missing_s + summary.stock_out_s;
  plan.stopped_s = summary.stopped_s;
  return plan;
}

}  // namespace mayfly::planner
