// The fast simulation implements the rules of the replacement policy a second time. Each test
// compares both on markets where one of the rules decides; simulation_test uses random markets.

#include "planner/simulation/policy_path.hpp"

#include <gtest/gtest.h>

#include "planner/simulation/path.hpp"
#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::job_of;
using test_support::kHour;
using test_support::market_of;
using test_support::on_demand_offer;
using test_support::spot_offer;
using test_support::workers_on;

constexpr double kHorizonS = 60 * kHour;
constexpr std::uint64_t kComparedPaths = 40;

/// Compares the two simulations path by path. Returns the sums over the outcomes.
PathOutcome expect_same(const Market& market, const JobModel& job, const Candidate& candidate) {
  PathOutcome sum;
  PathRunner runner(market, job, candidate, kHorizonS);
  for (std::uint64_t path = 0; path < kComparedPaths; ++path) {
    const PathOutcome fast = runner.run(1, path);
    const PathOutcome exact = run_policy_path(market, job, candidate, kHorizonS, 1, path);
    EXPECT_EQ(fast.losses, exact.losses) << "path " << path;
    EXPECT_EQ(fast.all_lost, exact.all_lost) << "path " << path;
    EXPECT_EQ(fast.refusals, exact.refusals) << "path " << path;
    EXPECT_EQ(fast.stopped_by_budget, exact.stopped_by_budget) << "path " << path;
    EXPECT_EQ(fast.finish_s < kNever, exact.finish_s < kNever) << "path " << path;
    if (fast.finish_s < kNever && exact.finish_s < kNever) {
      EXPECT_NEAR(fast.finish_s, exact.finish_s, 1e-5) << "path " << path;
    }
    EXPECT_NEAR(fast.cost, exact.cost, 1e-5) << "path " << path;
    sum.losses += fast.losses;
    sum.refusals += fast.refusals;
    sum.stopped_by_budget = sum.stopped_by_budget || fast.stopped_by_budget;
    sum.cost += fast.cost;
  }
  return sum;
}

OfferModel refusing(OfferModel offer, double chance, double least_s, double most_s) {
  offer.refused = chance;
  offer.stock_out = QuantileTable({least_s, most_s});
  return offer;
}

TEST(PolicyPath, ServersThatDoNotStartOrJoinInTimeAreGivenUp) {
  Market market = market_of({spot_offer(1, LifetimeTable::exponential(3 * kHour), 0),
                             spot_offer(3, LifetimeTable::exponential(3 * kHour), 60)});
  market.offers[0].start_up = QuantileTable({20, 500, 1500});
  (void)expect_same(market, job_of(40), workers_on({0, 1}, 4));
  market.offers[0].start_up = QuantileTable({60});
  market.offers[0].join = QuantileTable({10, 400, 1200});
  const double stopped = expect_same(market, job_of(40), workers_on({0, 1}, 4)).cost;
  market.offers[0].join = QuantileTable({10});
  EXPECT_GT(stopped, 1.5 * expect_same(market, job_of(40), workers_on({0, 1}, 4)).cost)
      << "after three servers in a row without a worker the cheaper offer is not requested again";
}

TEST(PolicyPath, TheEndOfALifetimeSaysNothingOfTheOffer) {
  JobModel job = job_of(4);
  job.server_lifetime_s = 600;
  Market market = market_of({spot_offer(1, LifetimeTable(), 0), spot_offer(2, LifetimeTable(), 0)});
  market.offers[0].start_up = QuantileTable({60, 590});  // some leave before they run
  (void)expect_same(market, job, workers_on({0, 1}, 4));
}

TEST(PolicyPath, ServersLeaveBeforeTheEndOfTheirLifetime) {
  const Market market = market_of({spot_offer(1, LifetimeTable::exponential(5 * kHour), 60)});
  JobModel job = job_of(40);
  job.server_lifetime_s = 2 * kHour;
  const Candidate candidate = workers_on({0}, 4);
  const PathOutcome limited = expect_same(market, job, candidate);
  job.server_lifetime_s = 0;
  EXPECT_GT(limited.cost, expect_same(market, job, candidate).cost);
}

TEST(PolicyPath, AnOfferIsAskedLastAfterABurst) {
  Market market = market_of({spot_offer(1, LifetimeTable(), 60, 0),
                             spot_offer(1.5, LifetimeTable::exponential(3 * kHour), 60, 1)},
                            2);
  market.zones[0].shocks = {1, 0.6, {}, 0};
  EXPECT_GT(expect_same(market, job_of(60), workers_on({0, 1}, 6)).losses, 100U);
}

TEST(PolicyPath, RefusedRequestsAreOnTheBillUntilTheyAreAnswered) {
  Market market =
      market_of({refusing(spot_offer(1, LifetimeTable::exponential(kHour), 60), 0.5, 60, 900),
                 refusing(spot_offer(1.2, LifetimeTable::exponential(kHour), 60), 0.5, 60, 900),
                 refusing(spot_offer(1.4, LifetimeTable::exponential(kHour), 60), 0.5, 60, 900)});
  market.offers[0].workers_most = 2;
  market.offers[1].workers_most = 3;
  JobModel job = job_of(40);
  job.budget_per_hour = 6;
  const Candidate candidate = workers_on({0, 1, 2}, 6);
  EXPECT_GT(expect_same(market, job, candidate).refusals, 1000U);
  job.budget = 40;
  EXPECT_TRUE(expect_same(market, job, candidate).stopped_by_budget);
}

TEST(PolicyPath, JobsStopAndServersEndInTimeForTheBudget) {
  const Market market = market_of({spot_offer(1, LifetimeTable::exponential(2 * kHour), 60)});
  JobModel job = job_of(40);
  for (const double budget : {2.0, 10.0, 39.0}) {
    job.budget = budget;
    EXPECT_TRUE(expect_same(market, job, workers_on({0}, 5)).stopped_by_budget);
  }
}

TEST(PolicyPath, OnDemandServersAreExchangedForSpotServers) {
  Market market =
      market_of({refusing(spot_offer(0.5, LifetimeTable::exponential(kHour), 300), 0.5, 60, 1800),
                 spot_offer(1.9, LifetimeTable::exponential(kHour), 60), on_demand_offer(2, 90)});
  market.offers[1].workers_most = 1;
  Candidate candidate = workers_on({0, 1, 2}, 5);
  const double with_floor_0 = expect_same(market, job_of(80), candidate).cost;
  candidate.on_demand_floor = 3;
  EXPECT_GT(expect_same(market, job_of(80), candidate).cost, with_floor_0);
  candidate.on_demand_floor = 0;
  market.offers[0].start_up = QuantileTable({60, 4000});  // some successors start too late
  (void)expect_same(market, job_of(80), candidate);
}

TEST(PolicyPath, ServersAreExchangedForThoseThatTheCompositionWants) {
  const Market market =
      market_of({refusing(spot_offer(1, LifetimeTable::exponential(2 * kHour), 60), 0.6, 60, 3600),
                 refusing(spot_offer(2, LifetimeTable::exponential(2 * kHour), 60), 0.6, 60, 3600),
                 on_demand_offer(3, 90)});
  Candidate candidate = workers_on({0, 1, 2}, 6);
  candidate.composition = {1, 3, 2};
  EXPECT_GT(expect_same(market, job_of(80), candidate).refusals, 500U);
  candidate.spares = 2;
  (void)expect_same(market, job_of(80), candidate);
}

}  // namespace
}  // namespace mayfly::planner
