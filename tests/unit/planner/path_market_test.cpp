// The effects of the market on a job on one path.

#include "planner/simulation/path_market.hpp"

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

TEST(PathMarket, AnOfferWithoutCapacityRefusesUntilItHasSome) {
  Market market = market_of({spot_offer(1, LifetimeTable(), 0)});
  market.offers[0].refused = 0.5;
  market.offers[0].stock_out = QuantileTable({100});
  const JobModel job = job_of(1);
  const CandidateOffers offers(market, workers_on({0}, 1));
  PathMarket simulated(market, job, offers);
  simulated.begin(PathDraws(1, 0));
  double now_s = 0;
  int refused = 0;
  for (; refused < 20; now_s += 1) {
    if (simulated.refuses(0, now_s)) {
      EXPECT_TRUE(simulated.refuses(0, now_s + 99.9));
      ++refused;
      now_s += 100;
    }
  }
  EXPECT_LT(now_s, 20 * 101 + 200) << "about every second request finds capacity";
}

TEST(PathMarket, TheFateOfAServerDependsOnItsNumberAmongThoseOfItsOfferAlone) {
  Market market = market_of({spot_offer(1, LifetimeTable::exponential(kHour), 60),
                             spot_offer(1, LifetimeTable::exponential(kHour), 60)});
  const JobModel job = job_of(1);
  const CandidateOffers one(market, workers_on({1}, 1));
  const CandidateOffers both(market, workers_on({0, 1}, 1));
  PathMarket alone(market, job, one);
  PathMarket shared(market, job, both);
  alone.begin(PathDraws(5, 3));
  shared.begin(PathDraws(5, 3));
  (void)shared.grant(0, 0);
  for (int server = 0; server < 5; ++server) {
    const ServerFate a = alone.grant(0, 10);
    const ServerFate b = shared.grant(1, 10);
    EXPECT_EQ(a.dies_s, b.dies_s);
    EXPECT_EQ(a.runs_s, 70);
    EXPECT_EQ(a.serial, b.serial);
  }
}

TEST(PathMarket, ShocksTakeRunningSpotServersOfTheirZone) {
  Market market = market_of({spot_offer(1, LifetimeTable(), 0, 0),
                             spot_offer(1, LifetimeTable(), 0, 1), on_demand_offer(3, 0, 2)},
                            3);
  for (std::size_t zone = 0; zone < 3; ++zone) {
    market.zones[zone].shocks.blocks = {{{100 - 10 * static_cast<double>(zone), 1, 0}}};
    market.zones[zone].shocks.block_s = 1e6;
  }
  const JobModel job = job_of(1);
  const CandidateOffers offers(market, workers_on({0, 1, 2}, 1));
  PathMarket simulated(market, job, offers);
  simulated.begin(PathDraws(1, 0));
  EXPECT_EQ(simulated.next_shock_s(), 90) << "zone 2 has no spot offer";
  const PathMarket::ZoneShock first = simulated.take_shock();
  EXPECT_EQ(first.zone, 1U);
  EXPECT_EQ(simulated.next_shock_s(), 100);
  ServerFate fate;
  fate.runs_s = 90;
  EXPECT_TRUE(simulated.is_taken(first, 1, fate, 90));
  EXPECT_FALSE(simulated.is_taken(first, 0, fate, 90)) << "another zone";
  EXPECT_FALSE(simulated.is_taken(first, 2, fate, 90)) << "on demand";
  fate.runs_s = 91;
  EXPECT_FALSE(simulated.is_taken(first, 1, fate, 90)) << "it does not run yet";
}

}  // namespace
}  // namespace mayfly::planner
