// The times and the offers of requests on a path. The comparison with the replacement policy is in
// policy_path_test.

#include "planner/simulation/path_requests.hpp"

#include <gtest/gtest.h>

#include "tests/unit/planner/invented_market.hpp"
#include "tests/unit/planner/path_parts.hpp"

namespace mayfly::planner {
namespace {

using test_support::job_of;
using test_support::market_of;
using test_support::on_demand_offer;
using test_support::PathParts;
using test_support::spot_offer;
using test_support::workers_on;

constexpr double kStockOutS = 1e6;

/// The cheaper offer refuses all requests except one in a million.
Market refusing_market() {
  Market market = market_of({spot_offer(1, LifetimeTable(), 0), on_demand_offer(3, 0)});
  market.offers[0].refused = 1 - 1e-6;
  market.offers[0].stock_out = QuantileTable({kStockOutS});
  return market;
}

PathRequests requests_of(PathParts& parts) {
  return {parts.rules,  parts.offers,    parts.catalog, parts.demand,
          parts.budget, parts.simulated, parts.servers};
}

TEST(PathRequests, GoToTheNextOfferIfTheBestOneRefuses) {
  PathParts parts(refusing_market(), job_of(1), workers_on({0, 1}, 3));
  PathRequests requests = requests_of(parts);
  EXPECT_EQ(requests.due_s(), 0);
  requests.ask(0);
  EXPECT_EQ(parts.servers.present(1), 3U);
  EXPECT_EQ(requests.refusals(), 1U);
  EXPECT_TRUE(requests.is_settled());
  EXPECT_FALSE(requests.ask_for_one(0, 10));
  EXPECT_EQ(requests.refusals(), 2U);
  EXPECT_TRUE(requests.ask_for_one(1, 10));
}

TEST(PathRequests, WaitForStockOfTheOnlyOfferLongerAndLonger) {
  PathParts parts(refusing_market(), job_of(1), workers_on({0}, 3));
  PathRequests requests = requests_of(parts);
  double last_s = 0;
  for (const double wait_s : {5, 10, 20, 40}) {
    requests.ask(requests.due_s());
    EXPECT_TRUE(requests.waits_for_stock());
    EXPECT_NEAR(requests.due_s(), last_s + wait_s, 1e-6);
    last_s = requests.due_s();
  }
  requests.lifetime_ended(50);
  EXPECT_EQ(requests.due_s(), 50) << "nothing is gathered while servers are missing already";
  requests.begin();
  EXPECT_EQ(requests.due_s(), 0);
  EXPECT_EQ(requests.refusals(), 0U);
}

TEST(PathRequests, GatherLossesAndShunAnOfferAfterABurst) {
  PathParts parts(market_of({spot_offer(1, LifetimeTable(), 0), spot_offer(2, LifetimeTable(), 0)}),
                  job_of(1), workers_on({0, 1}, 4));
  PathRequests requests = requests_of(parts);
  const auto lose = [&](double now_s) {
    const std::size_t offer = parts.servers[0].offer;
    parts.servers.remove(0, now_s);
    requests.lost(offer, now_s);
  };
  requests.ask(0);
  for (std::size_t place = 0; place < 4; ++place) {
    parts.servers.start_work(place);
  }
  lose(100);
  lose(100.01);
  EXPECT_NEAR(requests.due_s(), 100 + parts.rules.gather_s, 1e-9);
  requests.ask(requests.due_s());
  EXPECT_EQ(parts.servers.present(1), 2U) << "it lost as many as it kept";
  EXPECT_EQ(requests.due_s(), kNever);
  lose(1000);
  requests.ask(requests.due_s());
  EXPECT_EQ(parts.servers.present(1), 2U) << "a single loss, and long after the burst";
}

TEST(PathRequests, AreFirstForWhatTheFloorOrTheCompositionLacks) {
  const Market market = market_of({spot_offer(1, LifetimeTable(), 0), on_demand_offer(3, 0)});
  Candidate candidate = workers_on({0, 1}, 4);
  candidate.on_demand_floor = 1;
  PathParts with_floor(market, job_of(1), candidate);
  requests_of(with_floor).ask(0);
  EXPECT_EQ(with_floor.servers.present(1), 1U);
  EXPECT_EQ(with_floor.servers.present(0), 3U);
  candidate.composition = {1, 3};
  PathParts composed(market, job_of(1), candidate);
  requests_of(composed).ask(0);
  EXPECT_EQ(composed.servers.present(1), 3U);
  EXPECT_EQ(composed.servers.present(0), 1U);
}

TEST(PathRequests, GiveUpServersThatDoNotStartOrJoinInTimeAndAtTheEndOfTheirLifetime) {
  const auto leaves = [](double start_up_s, double join_s, double lifetime_s) {
    Market market = market_of({spot_offer(1, LifetimeTable(), start_up_s)});
    market.offers[0].join = QuantileTable({join_s});
    JobModel job = job_of(1);
    job.server_lifetime_s = lifetime_s;
    PathParts parts(market, job, workers_on({0}, 1));
    requests_of(parts).ask(0);
    return parts.servers[0].leaving;
  };
  const PolicyRules rules = default_rules();
  const Leaving never = leaves(rules.start_timeout_s, rules.join_timeout_s, 0);
  EXPECT_EQ(never.at_s, kNever);
  const Leaving not_started = leaves(rules.start_timeout_s + 1, 0, 0);
  EXPECT_EQ(not_started.at_s, rules.start_timeout_s);
  EXPECT_EQ(not_started.why, ServerEvent::kNotStarted);
  const Leaving not_joined = leaves(30, rules.join_timeout_s + 1, 0);
  EXPECT_EQ(not_joined.at_s, 30 + rules.join_timeout_s);
  EXPECT_EQ(not_joined.why, ServerEvent::kNotJoined);
  const Leaving old = leaves(30, 30, 5000);
  EXPECT_EQ(old.at_s, 5000 - rules.leave_before_end_s);
  EXPECT_EQ(old.why, ServerEvent::kLifetimeEnds);
}

TEST(PathRequests, StopAnOfferAfterThreeServersWithoutAWorker) {
  PathParts parts(market_of({spot_offer(1, LifetimeTable(), 0)}), job_of(1), workers_on({0}, 3));
  PathRequests requests = requests_of(parts);
  requests.ask(0);
  for (int server = 0; server < 3; ++server) {
    parts.servers.remove(0, 700);
    requests.not_joined(0, 700);
    EXPECT_EQ(requests.due_s(), 700) << "no batch of losses is gathered";
  }
  requests.ask(700);
  EXPECT_EQ(parts.servers.size(), 0U);
  EXPECT_EQ(requests.due_s(), kNever);
}

}  // namespace
}  // namespace mayfly::planner
