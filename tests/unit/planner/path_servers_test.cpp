// The servers of a path: their events, which of them are present and wanted, and their bill.

#include "planner/simulation/path_servers.hpp"

#include <gtest/gtest.h>

#include "planner/simulation/demand.hpp"
#include "planner/simulation/working_set.hpp"
#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::job_of;
using test_support::market_of;
using test_support::on_demand_offer;
using test_support::spot_offer;
using test_support::workers_on;

ServerFate fate_of(double runs_s, double joins_s, double dies_s, std::uint64_t serial = 0) {
  return {runs_s, joins_s, dies_s, serial};
}

TEST(PathServer, JoinsUnlessItIsTakenOrGivenUpBefore) {
  PathServer server;
  server.fate = fate_of(5, 10, 20);
  EXPECT_EQ(server.next_s(), 10);
  EXPECT_EQ(server.next(), ServerEvent::kJoins);
  server.leaving = {8, ServerEvent::kNotJoined};
  EXPECT_EQ(server.next_s(), 8);
  EXPECT_EQ(server.next(), ServerEvent::kNotJoined);
  server.works = true;
  server.leaving.at_s = 20;
  EXPECT_EQ(server.next_s(), 20);
  EXPECT_EQ(server.next(), ServerEvent::kTaken) << "at once: the provider is first";
  server.leaving.at_s = server.fate.dies_s = kNever;
  EXPECT_EQ(server.next_s(), kNever);
}

struct TwoOffers {
  Market market = market_of({spot_offer(1, LifetimeTable(), 0), on_demand_offer(3, 0)});
  CandidateOffers offers{market, workers_on({1, 0}, 4)};  // the on-demand offer is the first one
  PathServers all{offers, Billing{}};
};

TEST(PathServers, TheNextEventIsTheFirstOfAllServers) {
  TwoOffers servers;
  EXPECT_EQ(servers.all.next_s(), kNever);
  servers.all.add(1, fate_of(1, 30, 100, 7), {}, 0);
  servers.all.add(1, fate_of(1, 20, 100, 8), {}, 0);
  servers.all.add(0, fate_of(1, 40, kNever, 9), {}, 0);
  EXPECT_EQ(servers.all.next_s(), 20);
  EXPECT_EQ(servers.all.next(), 1U);
  servers.all.start_work(1);
  EXPECT_EQ(servers.all.next(), 0U);
  servers.all.remove(0, 25);
  EXPECT_EQ(servers.all.next_s(), 40);
  EXPECT_EQ(servers.all[servers.all.next()].fate.serial, 9U) << "the last one took its place";
  EXPECT_EQ(servers.all.place_of(8), 1U);
  EXPECT_GT(servers.all[0].order, servers.all[1].order);
  servers.all.clear();
  EXPECT_EQ(servers.all.next_s(), kNever);
  EXPECT_EQ(servers.all.bill().cost(1e6), 0);
}

TEST(PathServers, AServerThatGivesWayIsNotPresent) {
  TwoOffers servers;
  servers.all.add(0, fate_of(0, 0, kNever, 1), {}, 0);
  servers.all.add(1, fate_of(0, 0, kNever, 2), {}, 0);
  servers.all.set_gives_way(0, true);
  EXPECT_EQ(servers.all.present(), 1U);
  EXPECT_EQ(servers.all.present(0), 0U);
  EXPECT_EQ(servers.all.on_demand_present(), 0U);
  servers.all.set_gives_way(0, false);
  EXPECT_EQ(servers.all.on_demand_present(), 1U);
  servers.all.set_gives_way(0, true);
  servers.all.remove(0, 0);
  EXPECT_EQ(servers.all.present(), 1U);
  EXPECT_EQ(servers.all.present(1), 1U);
  EXPECT_EQ(servers.all.size(), 1U);
}

TEST(PathBill, IsFromTheRequestForThePolicyAndMayBeFromRunningForTheProvider) {
  PathBill bill({true, 60});
  bill.open(36, 100, 150);  // 0.01 per second
  EXPECT_DOUBLE_EQ(bill.spending(100).spent, 0.6) << "the least time, at once";
  EXPECT_DOUBLE_EQ(bill.at_once(36), 0.6);
  EXPECT_DOUBLE_EQ(bill.cost(140), 0) << "it does not run yet";
  EXPECT_DOUBLE_EQ(bill.cost(160), 0.6);
  EXPECT_DOUBLE_EQ(bill.cost(250), 1);
  EXPECT_DOUBLE_EQ(bill.spending(250).spent, 1.5);
  EXPECT_DOUBLE_EQ(bill.spending(250).per_hour, 36);
  bill.close(0, 250);
  EXPECT_DOUBLE_EQ(bill.cost(1000), 1);
  EXPECT_DOUBLE_EQ(bill.spending(1000).spent, 1.5);
  EXPECT_DOUBLE_EQ(bill.spending(1000).per_hour, 0);
}

TEST(PathBill, IsNeverAboveItsBound) {
  RandomStream draw(CounterRandom(31));
  PathBill bill(Billing{});
  std::size_t open = 0;
  double now_s = 0;
  for (int change = 0; change < 1000; ++change) {
    now_s += 100 * draw.unit();
    if (open > 0 && draw.below(2) == 0) {
      bill.close(draw.below(open), now_s);
      --open;
    } else {
      bill.open(draw.unit(), now_s, now_s + 50);
      ++open;
    }
    const PathBill::Spending exact = bill.spending(now_s);
    const PathBill::Spending most = bill.spending_at_most(now_s);
    EXPECT_LE(exact.spent, most.spent * (1 + 1e-9));
    EXPECT_NEAR(exact.per_hour, most.per_hour, 1e-9);
  }
}

TEST(Demand, OfAFloorIsOnDemandFirst) {
  TwoOffers servers;
  Candidate candidate = workers_on({1, 0}, 3);
  candidate.spares = 1;
  candidate.on_demand_floor = 2;
  const cloud_hooks::OfferCatalog catalog(terms_of(servers.market, job_of(1), candidate), {});
  Demand demand(servers.offers, candidate, catalog, servers.all);
  EXPECT_EQ(demand.missing(), 4U);
  EXPECT_EQ(demand.missing(3), 1U) << "three may come";
  EXPECT_EQ(demand.lacking_on_demand(), 2U);
  EXPECT_EQ(demand.lacking_on_demand(1), 1U);
  for (std::uint64_t serial = 0; serial < 3; ++serial) {
    EXPECT_FALSE(demand.may_give_way(0));
    servers.all.add(0, fate_of(0, 0, kNever, serial), {}, 0);
  }
  EXPECT_EQ(demand.lacking_on_demand(), 0U);
  EXPECT_TRUE(demand.may_give_way(0)) << "three are more than the floor";
  EXPECT_FALSE(demand.may_give_way(1)) << "not on demand";
  demand.fall_back();
  EXPECT_TRUE(demand.has_fallen_back());
  EXPECT_EQ(demand.lacking_on_demand(), 1U);
  EXPECT_FALSE(demand.may_give_way(0));
  demand.begin();
  EXPECT_FALSE(demand.has_fallen_back());
}

TEST(Demand, OfACompositionIsOfEachOffer) {
  TwoOffers servers;
  Candidate candidate = workers_on({1, 0}, 3);
  candidate.composition = {1, 2};
  const cloud_hooks::OfferCatalog catalog(terms_of(servers.market, job_of(1), candidate), {});
  const Demand demand(servers.offers, candidate, catalog, servers.all);
  EXPECT_TRUE(demand.has_composition());
  EXPECT_EQ(demand.lacking(1), 2U);
  EXPECT_EQ(demand.lacking(1, 1), 1U);
  servers.all.add(0, fate_of(0, 0, kNever, 1), {}, 0);
  EXPECT_FALSE(demand.may_give_way(0));
  servers.all.add(0, fate_of(0, 0, kNever, 2), {}, 0);
  EXPECT_TRUE(demand.may_give_way(0)) << "one more than wanted";
  EXPECT_EQ(demand.lacking(0), 0U);
}

}  // namespace
}  // namespace mayfly::planner
