#include "cloud_hooks/core/budget.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

constexpr double kOnePerSecond = 3600;  // per hour

Instant at(std::int64_t second) {
  return Instant{} + seconds(second);
}

ReplacementOptions with_budget(double budget) {
  ReplacementOptions options;
  options.budget = budget;
  options.stop_margin = seconds(300);
  options.release_margin = seconds(60);
  options.billed_at_least = Duration(0);
  return options;
}

TEST(Budget, StopsTheJobOnceAndIsOverBeforeItIsUsedUp) {
  const ReplacementOptions options = with_budget(1000);
  Bill bill(0, Duration(0));
  bill.open("a", kOnePerSecond, at(0));
  Budget budget(options, bill);
  EXPECT_EQ(budget.next_alarm(at(0)), at(700));
  EXPECT_FALSE(budget.must_stop(at(699)));
  EXPECT_TRUE(budget.must_stop(at(700)));
  EXPECT_TRUE(budget.is_stopped());
  EXPECT_FALSE(budget.must_stop(at(701))) << "it said so";
  EXPECT_EQ(budget.next_alarm(at(701)), at(940));
  EXPECT_FALSE(budget.is_over());
  EXPECT_FALSE(budget.must_stop(at(940)));
  EXPECT_TRUE(budget.is_over());
  EXPECT_FALSE(budget.next_alarm(at(940)));
}

TEST(Budget, HasNoAlarmWhileNothingIsBilledOrThereIsNone) {
  const ReplacementOptions options = with_budget(1000);
  const ReplacementOptions unlimited;
  Bill bill(0, Duration(0));
  EXPECT_FALSE(Budget(options, bill).next_alarm(at(0)));
  bill.open("a", kOnePerSecond, at(0));
  EXPECT_FALSE(Budget(unlimited, bill).next_alarm(at(0)));
  EXPECT_FALSE(Budget(unlimited, bill).must_stop(at(1'000'000)));
}

TEST(Budget, AffordsWhatTheHourlyBudgetLeaves) {
  ReplacementOptions options;
  options.budget_per_hour = 10;
  Bill bill(0, Duration(0));
  bill.open("a", 4, at(0));
  const Budget budget(options, bill);
  EXPECT_EQ(budget.affordable(at(0), 2, 9), 3u) << "exactly, in spite of rounding";
  EXPECT_EQ(budget.affordable(at(0), 2, 1), 1u);
  EXPECT_EQ(budget.affordable(at(0), 7, 9), 0u);
  EXPECT_EQ(budget.affordable(at(0), 0, 9), 9u) << "it costs nothing";
}

TEST(Budget, AffordsOnlyServersThatCanComputeBeforeTheJobStops) {
  ReplacementOptions options = with_budget(1000);
  options.billed_at_least = seconds(60);
  Bill bill(0, Duration(0));
  const Budget budget(options, bill);
  // Each server needs 420 seconds: the stop margin and twice the least billed time.
  EXPECT_EQ(budget.affordable(at(0), kOnePerSecond, 9), 2u);
  bill.open("a", kOnePerSecond, at(0));  // this server needs 360 seconds
  EXPECT_EQ(budget.affordable(at(0), kOnePerSecond, 9), 1u);
  EXPECT_EQ(budget.affordable(at(400), kOnePerSecond, 9), 0u) << "400 are spent";
}

TEST(Budget, LimitsTheLifetimeOfAServerToWhatItCanPay) {
  ReplacementOptions options = with_budget(1000);
  options.lifetime_max = seconds(5000);
  Bill bill(400, Duration(0));
  const Budget budget(options, bill);
  EXPECT_EQ(budget.lifetime(at(0), kOnePerSecond), seconds(600));
  EXPECT_EQ(budget.lifetime(at(0), kOnePerSecond / 100), seconds(5000));
  EXPECT_EQ(budget.lifetime(at(0), 100 * kOnePerSecond), seconds(60)) << "clouds bill so much";
  options.lifetime_max = Duration(0);
  EXPECT_EQ(budget.lifetime(at(0), kOnePerSecond), seconds(600));
  EXPECT_EQ(budget.lifetime(at(0), 0), Duration(0)) << "no limit";
}

TEST(Budget, ShowsTheExcessOverTheHourlyBudget) {
  ReplacementOptions options;
  Bill bill(0, Duration(0));
  bill.open("a", 4, at(0));
  const Budget budget(options, bill);
  EXPECT_EQ(budget.hourly_excess(), 0);
  options.budget_per_hour = 3;
  EXPECT_NEAR(budget.hourly_excess(), 1, 1e-6);
  options.budget_per_hour = 4;
  EXPECT_LE(budget.hourly_excess(), 0);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
