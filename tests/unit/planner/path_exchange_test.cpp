// The exchange of servers that are used only because better ones were not available. The comparison
// with the replacement policy is in policy_path_test.

#include "planner/simulation/path_exchange.hpp"

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

constexpr std::uint64_t kOld = 1;
constexpr std::uint64_t kYounger = 2;
constexpr std::uint64_t kNew = 3;

/// Two on-demand servers, the second one requested at 100 s, and a cheap spot offer.
class PathExchangeTest : public testing::Test {
 protected:
  PathExchangeTest() {
    add(1, kOld, 0);
    add(1, kYounger, 100);
    exchange.begin();
  }
  void add(std::size_t offer, std::uint64_t serial, double now_s) {
    ServerFate fate;
    fate.serial = serial;
    parts.servers.add(offer, fate, {}, now_s);
    parts.servers.start_work(parts.servers.size() - 1);
  }
  void plan(double now_s) { exchange.plan(parts.catalog, parts.demand.missing() == 0, now_s); }
  void begin_one(double now_s) {
    plan(now_s);
    add(exchange.offer(), kNew, now_s);
    exchange.granted(kNew);
    plan(now_s);
  }

  PathParts parts{market_of({spot_offer(1, LifetimeTable(), 0), on_demand_offer(3, 0),
                             spot_offer(2.9, LifetimeTable(), 0)}),
                  job_of(1), workers_on({0, 1, 2}, 2)};
  PathExchange exchange{parts.rules, parts.offers, parts.catalog, parts.demand, parts.servers};
  const double after_s = parts.rules.back_to_spot_after_s;
};

TEST_F(PathExchangeTest, IsDueForTheOldestServerAndTheCheapestOffer) {
  plan(200);
  EXPECT_EQ(exchange.due_s(), after_s);
  EXPECT_EQ(exchange.offer(), 0U) << "the other spot offer is hardly cheaper";
  plan(after_s + 5);
  EXPECT_EQ(exchange.due_s(), after_s + 5);
  exchange.plan(parts.catalog, false, 200);
  EXPECT_EQ(exchange.due_s(), kNever) << "servers are missing";
}

TEST_F(PathExchangeTest, TheOldServerLeavesWhenItsSuccessorWorks) {
  begin_one(after_s);
  EXPECT_EQ(exchange.due_s(), kNever) << "one at a time";
  EXPECT_EQ(parts.demand.missing(), 0U);
  EXPECT_EQ(parts.servers.on_demand_present(), 1U);
  EXPECT_FALSE(exchange.joined(kYounger, after_s));
  const auto leaves = exchange.joined(kNew, after_s + 60);
  ASSERT_TRUE(leaves);
  EXPECT_EQ(parts.servers[*leaves].fate.serial, kOld);
  parts.servers.remove(*leaves, after_s + 60);
  exchange.removed(kOld, after_s + 60);
  plan(after_s + 60);
  EXPECT_EQ(exchange.due_s(), 2 * after_s + 60) << "the next one";
}

TEST_F(PathExchangeTest, AfterAFailureTheOldServerStaysAndTheNextAttemptIsLater) {
  begin_one(after_s);
  parts.servers.remove(parts.servers.place_of(kNew), after_s + 10);
  exchange.removed(kNew, after_s + 10);
  EXPECT_EQ(parts.servers.on_demand_present(), 2U);
  plan(after_s + 10);
  EXPECT_EQ(exchange.due_s(), after_s + 10 + 2 * after_s);
  double doubled_s = 2 * after_s;
  for (int failures = 2; failures <= 6; ++failures) {
    exchange.refused(0);
    plan(0);
    doubled_s = std::min(2 * doubled_s, 16 * after_s);
    EXPECT_EQ(exchange.due_s(), doubled_s);
  }
}

TEST_F(PathExchangeTest, TheSuccessorTakesThePlaceOfAnOldServerThatIsLost) {
  begin_one(after_s);
  parts.servers.remove(parts.servers.place_of(kOld), after_s + 10);
  exchange.removed(kOld, after_s + 10);
  EXPECT_EQ(parts.demand.missing(), 0U);
  plan(after_s + 10);
  EXPECT_EQ(exchange.due_s(), after_s + 100) << "of the younger server";
  EXPECT_FALSE(exchange.joined(kNew, after_s + 20));
}

TEST_F(PathExchangeTest, WaitsForNewsIfTheBudgetDoesNotAllowIt) {
  plan(after_s);
  exchange.postpone(after_s);
  plan(after_s);
  EXPECT_EQ(exchange.due_s(), after_s + 60);
  exchange.budget_changed();
  plan(after_s + 1);
  EXPECT_EQ(exchange.due_s(), after_s + 1);
}

}  // namespace
}  // namespace mayfly::planner
