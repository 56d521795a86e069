// The servers that budgets and limits of offers still allow on a path.

#include "planner/simulation/path_budget.hpp"

#include <gtest/gtest.h>

#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::job_of;
using test_support::kHour;
using test_support::market_of;
using test_support::spot_offer;
using test_support::workers_on;

class PathBudgetTest : public testing::Test {
 protected:
  void add(std::size_t offer, double now_s) { servers.add(offer, {}, {}, now_s); }
  [[nodiscard]] PathBudget budget() const { return {default_rules(), offers, job, servers}; }

  Market market = market_of({spot_offer(1, LifetimeTable(), 0), spot_offer(2, LifetimeTable(), 0),
                             spot_offer(0, LifetimeTable(), 0)});
  CandidateOffers offers{market, workers_on({0, 1, 2}, 8)};
  JobModel job = job_of(100);
  PathServers servers{offers, job.billing};
};

TEST_F(PathBudgetTest, WithoutOneAllowsWhatIsWanted) {
  EXPECT_EQ(budget().affordable(0, 8, {}, 0), 8U);
  EXPECT_EQ(budget().lifetime_s(0, {}, 0), job.server_lifetime_s);
  EXPECT_EQ(budget().alarm_s(1e9, 0), kNever);
  EXPECT_FALSE(budget().is_used_up(1e9));
}

TEST_F(PathBudgetTest, AnOfferHasNoMoreServersThanItsLimit) {
  market.offers[0].workers_most = 3;
  add(0, 0);
  EXPECT_EQ(budget().affordable(0, 8, {}, 0), 2U);
  const OpenRequest open{0, 1};
  EXPECT_EQ(budget().affordable(0, 8, {&open, 1}, 0), 1U) << "it may still bring a server";
  EXPECT_EQ(budget().affordable(1, 8, {&open, 1}, 0), 8U);
}

TEST_F(PathBudgetTest, AnHourOfAllServersCostsNoMoreThanItsBudget) {
  job.budget_per_hour = 5;
  add(1, 0);
  EXPECT_EQ(budget().affordable(0, 8, {}, 0), 3U);
  EXPECT_EQ(budget().affordable(1, 8, {}, 0), 1U);
  EXPECT_EQ(budget().affordable(2, 8, {}, 0), 8U) << "they cost nothing";
  const OpenRequest open{1, 1};
  EXPECT_EQ(budget().affordable(0, 8, {&open, 1}, 0), 1U);
}

TEST_F(PathBudgetTest, AServerMustComputeForSomeTimeBeforeTheJobIsStopped) {
  // Each server needs seven minutes: twice the least billed minute, and the stop margin of five.
  job.budget = 3.01 * 7 / 60;
  EXPECT_EQ(budget().affordable(0, 8, {}, 0), 3U);
  EXPECT_EQ(budget().affordable(1, 8, {}, 0), 1U);
  const OpenRequest open{0, 1};
  EXPECT_EQ(budget().affordable(0, 8, {&open, 1}, 0), 2U);
  add(0, 0);
  EXPECT_EQ(budget().affordable(0, 8, {}, 0), 2U);
}

TEST_F(PathBudgetTest, LifetimesArePaidFor) {
  job.server_lifetime_s = 3 * kHour;
  job.budget = 2;
  EXPECT_EQ(budget().lifetime_s(0, {}, 0), 2 * kHour);
  EXPECT_EQ(budget().lifetime_s(1, {}, 0), kHour);
  EXPECT_EQ(budget().lifetime_s(2, {}, 0), 3 * kHour);
  const OpenRequest open{1, 3};
  EXPECT_NEAR(budget().lifetime_s(0, {&open, 1}, 0), 2 * kHour - 6 * 60, 1);
  add(1, 0);
  EXPECT_EQ(budget().lifetime_s(0, {}, 2 * kHour), 60) << "what clouds bill at least";
}

TEST_F(PathBudgetTest, TheAlarmIsBeforeTheBudgetIsUsedUp) {
  job.budget = 2;
  add(0, 0);
  const double stop_s = 2 * kHour - default_rules().stop_margin_s;
  EXPECT_EQ(budget().alarm_s(kHour, 0), kNever) << "something else happens before";
  EXPECT_NEAR(budget().alarm_s(3 * kHour, 100), stop_s, 1e-6);
  EXPECT_FALSE(budget().is_used_up(stop_s - 1));
  EXPECT_TRUE(budget().is_used_up(stop_s + 1));
  EXPECT_GT(budget().alarm_s(3 * kHour, stop_s), stop_s) << "time goes on";
  servers.remove(0, stop_s);
  EXPECT_FALSE(budget().is_used_up(stop_s + 1)) << "nothing runs";
}

}  // namespace
}  // namespace mayfly::planner
