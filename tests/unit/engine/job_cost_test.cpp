#include "engine/run/job_cost.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

constexpr Instant kStart{1'000'000'000};

Instant after(double s) {
  return kStart + Duration(static_cast<std::int64_t>(s * 1e9));
}

/// Each worker costs one unit of money per second.
JobConfig priced() {
  JobConfig config;
  config.price_per_hour = 3600;
  return config;
}

TEST(JobCost, OfWorkersWithAPriceIsTheirTime) {
  JobCost cost(priced(), {}, 0);
  EXPECT_FALSE(cost.on_note(after(0), "joined", 1)) << "it does not say who is billed";
  const std::optional<Spending> connected = cost.on_note(after(0), "connected", 1);
  ASSERT_TRUE(connected.has_value());
  EXPECT_EQ(connected->billing, 1U);
  EXPECT_DOUBLE_EQ(cost.of_workers(after(5))->spent, 5);
  EXPECT_DOUBLE_EQ(cost.at(after(7))->spent, 7);
  EXPECT_FALSE(cost.due(after(7)).has_value());
  EXPECT_TRUE(cost.due(after(61)).has_value());
}

TEST(JobCost, OfWorkersGoesOnWhileNoCoordinatorRuns) {
  RunHistory history;
  history.spending = Spending{10, 7200, 2};
  history.spending_t = 100;
  EXPECT_DOUBLE_EQ(JobCost(priced(), history, 130).at(after(0))->spent, 70);
  EXPECT_DOUBLE_EQ(JobCost(priced(), history, 90).at(after(0))->spent, 10)
      << "the clock was set back";
}

TEST(JobCost, OfWorkersStopsWithTheJob) {
  JobCost cost(priced(), {}, 0);
  (void)cost.on_note(after(0), "connected", 1);
  const std::optional<Spending> last = cost.close(after(4));
  ASSERT_TRUE(last.has_value());
  EXPECT_DOUBLE_EQ(last->spent, 4);
  EXPECT_EQ(last->billing, 0U);
  EXPECT_DOUBLE_EQ(cost.at(after(100))->spent, 4);
  EXPECT_FALSE(cost.of_workers(after(100)).has_value());
  EXPECT_FALSE(cost.close(after(100)).has_value()) << "it is on record";
}

TEST(JobCost, OfAProvidersServersIsWhatTheCloudTells) {
  JobConfig config = priced();
  config.cloud_provider = "gce";  // the prices are those of its servers
  JobCost cost(config, {}, 0);
  EXPECT_FALSE(cost.on_note(after(0), "connected", 1).has_value());
  EXPECT_FALSE(cost.at(after(0)).has_value());
  cost.of_servers({3, 60, 2});
  EXPECT_DOUBLE_EQ(cost.at(after(3600))->spent, 3) << "until the next bill";
  EXPECT_FALSE(cost.of_workers(after(1)).has_value());
  EXPECT_FALSE(cost.close(after(1)).has_value());
  EXPECT_DOUBLE_EQ(cost.at(after(1))->spent, 3);
}

}  // namespace
}  // namespace mayfly::engine
