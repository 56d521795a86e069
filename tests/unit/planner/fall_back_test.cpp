// The time at which a job falls back to on-demand servers.

#include "planner/simulation/fall_back.hpp"

#include <gtest/gtest.h>

#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::job_of;
using test_support::kHour;
using test_support::market_of;
using test_support::on_demand_offer;
using test_support::spot_offer;
using test_support::workers_on;

TEST(FallBack, IsDueWhenTheRestOfTheWorkOnDemandTakesTheTimeThatIsLeft) {
  const Market market = market_of(
      {spot_offer(1, LifetimeTable(), 0), on_demand_offer(3, 60), on_demand_offer(4, 600, 0, 1)}, 1,
      2);
  JobModel job = job_of(6);
  job.deadline_s = 2 * kHour;
  Candidate candidate = workers_on({0, 1, 2}, 2);
  candidate.falls_back = true;
  const CandidateOffers offers(market, candidate);
  const cloud_hooks::OfferCatalog catalog(terms_of(market, job, candidate), {});
  const PathServers servers(offers, job.billing);
  Demand demand(offers, candidate, catalog, servers);
  Training training(market, job, candidate);
  FallBack fall_back(offers, job, candidate, training, demand);
  training.begin(PathDraws(1, 0));
  fall_back.begin();
  fall_back.plan(0);
  // Two workers of machine 1 are four times as fast as one of machine 0: they need 1.5 hours.
  EXPECT_NEAR(fall_back.due_s(), 2 * kHour - 600 - 1.5 * kHour, 1e-6);
  training.join(0);
  training.join(0);
  training.update(false);
  fall_back.plan(0);
  EXPECT_NEAR(fall_back.due_s(), 2 * (0.5 * kHour - 600), 1e-6) << "half of the work goes on";
  EXPECT_FALSE(demand.has_fallen_back());
  fall_back.plan(0.5 * kHour);
  EXPECT_TRUE(demand.has_fallen_back());
  fall_back.plan(0.5 * kHour);
  EXPECT_EQ(fall_back.due_s(), kNever);

  job.deadline_s.reset();
  FallBack without(offers, job, candidate, training, demand);
  demand.begin();
  without.begin();
  without.plan(1e6);
  EXPECT_FALSE(demand.has_fallen_back());
}

}  // namespace
}  // namespace mayfly::planner
