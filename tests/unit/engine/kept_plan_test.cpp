#include "engine/cloud/kept_plan.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/file.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

constexpr double kHour = 3600;
const cloud_hooks::Offer kShortLived{"a", "z", cloud_hooks::Market::kSpot};
const cloud_hooks::Offer kLongLived{"b", "z", cloud_hooks::Market::kSpot};

planner::PlannedOffer planned_offer(const cloud_hooks::Offer& offer, double mean_lifetime_h) {
  planner::PlannedOffer planned;
  planned.offer = to_string(offer);
  planned.machine = offer.machine_type;
  planned.hazard = {{kHour, 1 / mean_lifetime_h}};
  planned.start_s = {300, 360, 420};
  return planned;
}

/// A run directory with a plan for two offers and a checkpoint every 10 minutes.
class KeptPlanTest : public testing::Test {
 protected:
  KeptPlanTest() {
    planner::KeptPlan plan;
    plan.speeds = {{"a", {1}}};
    plan.offers = {planned_offer(kShortLived, 1), planned_offer(kLongLived, 100)};
    plan.checkpoint_every_s = 600;
    plan.checkpoint_because = "a loss costs 5 min";
    const std::string text = plan_file_text(boost::json::serialize(object_of(plan)));
    EXPECT_TRUE(write_file_atomic(plan_path(folder.path()), std::string_view(text)).ok());
    config.run_dir = folder.path();
  }

  test_support::TemporaryFolder folder;
  JobConfig config;
};

TEST_F(KeptPlanTest, IsReadAsItWasWritten) {
  const Result<planner::KeptPlan> plan = read_kept_plan(plan_path(folder.path()));
  ASSERT_TRUE(plan.ok()) << plan.error().detail;
  ASSERT_EQ(plan.value().offers.size(), 2U);
  EXPECT_EQ(plan.value().offers[0].offer, to_string(kShortLived));
  EXPECT_EQ(plan.value().checkpoint_because, "a loss costs 5 min");
}

TEST_F(KeptPlanTest, AServerThatIsLostSoonerWorksLess) {
  const auto share = planned_up_share(folder.path());
  ASSERT_TRUE(share);
  const double often_lost = share(kShortLived, seconds(60));
  const double seldom_lost = share(kLongLived, seconds(60));
  EXPECT_GT(often_lost, 0.8) << "each of about one loss an hour costs six minutes";
  EXPECT_LT(often_lost, 0.95);
  EXPECT_GT(seldom_lost, 0.99);
  EXPECT_LE(seldom_lost, 1);
  EXPECT_EQ(share({"c", "z", cloud_hooks::Market::kSpot}, seconds(60)), 1) << "not in the plan";
  EXPECT_FALSE(planned_up_share(folder / "elsewhere")) << "there is no plan";
}

TEST_F(KeptPlanTest, TheIntervalOfCheckpointsIsSaidWithItsReason) {
  config.checkpoint_minutes = 10;
  EXPECT_EQ(planned_interval(config), "a checkpoint every 10.0 min: a loss costs 5 min");
  config.checkpoint_minutes = 3;
  EXPECT_EQ(planned_interval(config),
            "a checkpoint every 3.0 min, as it is set; the plan has one every 10.0 min: a loss "
            "costs 5 min");
  config.run_dir = folder / "elsewhere";
  EXPECT_EQ(planned_interval(config), "") << "there is no plan";
}

}  // namespace
}  // namespace mayfly::engine
