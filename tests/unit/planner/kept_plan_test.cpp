// The facts that a plan keeps for its job, and the comparison of an invented run with them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/runs/plan_check.hpp"
#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::kHour;

constexpr double kWork = 36;  // seconds that one worker takes for a step
constexpr double kSteps = 20 * kHour / kWork;
constexpr std::uint32_t kWorkers = 4;
const std::string kOffer = "m0 in z0 (spot)";

KeptPlan invented_plan() {
  Market market = test_support::market_of(
      {test_support::spot_offer(2, LifetimeTable::exponential(10 * kHour), 60)});
  market.zones[0].shocks.per_hour = 0.1;
  market.zones[0].shocks.share = 0.5;
  JobModel job = test_support::job_of(20);
  job.speed_log_sd = 0.05;
  const Row row = evaluate(market, job, {}, test_support::workers_on({0}, kWorkers), 400);
  KeptPlan plan = kept_plan(market, job, row, kWork);
  plan.model = "net-8";
  plan.global_batch = 64;
  return plan;
}

/// A run with the steps and the speeds of the plan.
RunFacts run_of(int members) {
  RunFacts run;
  run.name = "a";
  run.model = "net-8";
  run.global_batch = 64;
  run.machine = "m0";
  run.steps.assign(50, {kWork / members, members});
  for (int i = 0; i < members; ++i) {
    run.workers.push_back({"m0", "z0", 0, 100, false, true, kOffer});
  }
  run.starts = {{"m0", "spot", 55, 5}};
  run.joins_s = {1};
  return run;
}

RunCourse course_of(int members) {
  RunCourse course;
  course.stretches = {{members, kSteps}};
  course.start_s = 61;
  course.total_s = 61 + kSteps * kWork / members;
  course.cost = 2.0 * members * course.total_s / kHour;
  return course;
}

const CheckedQuantity& quantity_in(const PlanCheck& check, const std::string& name) {
  const auto found = std::ranges::find(check.quantities, name, &CheckedQuantity::name);
  EXPECT_NE(found, check.quantities.end()) << name;
  return *found;
}

void expect_sum(const PlanCheck& check) {
  double sum = 0;
  for (const TimeCause& cause : check.causes) {
    sum += cause.seconds;
  }
  EXPECT_NEAR(sum, check.actual_s - check.planned_s, 1e-6);
}

TEST(KeptPlan, HasWhatItsMarketHas) {
  const KeptPlan plan = invented_plan();
  EXPECT_EQ(plan.plan, "4 x m0, spot in z0");
  EXPECT_DOUBLE_EQ(plan.steps, kSteps);
  ASSERT_EQ(plan.offers.size(), 1U);
  const PlannedOffer& offer = plan.offers[0];
  EXPECT_EQ(offer.offer, kOffer);
  EXPECT_NEAR(offer.shocks_per_s, 0.1 * 0.5 / kHour, 1e-12);
  EXPECT_NEAR(offer.lifetime().survival(10 * kHour), std::exp(-1), 1e-3);
  EXPECT_DOUBLE_EQ(offer.start_s.median, 60);
  EXPECT_DOUBLE_EQ(plan.speed("m0", 3), 3 / kWork);
  EXPECT_DOUBLE_EQ(plan.speed("m0", 8), 8 / kWork) << "in proportion";
  EXPECT_DOUBLE_EQ(plan.speed("another", 2), 2 / kWork);
  EXPECT_EQ(plan.speed("m0", 0), 0);
  EXPECT_LE(plan.time_s.low, plan.time_s.median);
  EXPECT_LT(plan.losses.low, plan.losses.high);
}

TEST(KeptPlan, ARunAsPlannedIsInside) {
  const KeptPlan plan = invented_plan();
  const auto check = check_kept_plan(run_of(4), course_of(4), plan);
  ASSERT_TRUE(check.ok()) << check.error().detail;
  const PlanCheck& found = check.value();
  EXPECT_EQ(found.composition, "");
  for (const char* name : {"speed of 4 workers", "total time", "cost"}) {
    EXPECT_EQ(quantity_in(found, name).is_inside(), true) << name;
  }
  EXPECT_NEAR(*quantity_in(found, "start of a server").actual, 61, 1e-9);
  expect_sum(found);
}

TEST(KeptPlan, OtherWorkersAreTheFirstCause) {
  const KeptPlan plan = invented_plan();
  RunFacts run = run_of(3);
  run.workers[0].offer = "m1 in z1 (on_demand)";
  const auto check = check_kept_plan(run, course_of(3), plan);
  ASSERT_TRUE(check.ok());
  const PlanCheck& found = check.value();
  EXPECT_EQ(found.composition,
            "planned: 4 x m0, spot in z0; the run began with 3 workers, 2 x m0 in z0 (spot), "
            "1 x m1 in z1 (on_demand)");
  EXPECT_EQ(found.causes.front().name, "other workers than planned");
  EXPECT_NEAR(found.causes.front().seconds, kSteps * kWork * (1.0 / 3 - 1.0 / 4), 1e-6);
  EXPECT_EQ(quantity_in(found, "total time").is_inside(), false);
  expect_sum(found);
}

TEST(KeptPlan, ARunThatHasNotEndedIsComparedWithItsPart) {
  const KeptPlan plan = invented_plan();
  RunCourse course = course_of(4);
  course.stretches = {{4, kSteps / 4}};
  course.total_s = 61 + kSteps / 4 * kWork / 4;
  course.was_resumed = true;
  const auto check = check_kept_plan(run_of(4), course, plan);
  ASSERT_TRUE(check.ok());
  const PlanCheck& found = check.value();
  EXPECT_EQ(quantity_in(found, "total time").missing, "the run has 500 of 2000 steps");
  EXPECT_NEAR(found.planned_s, found.actual_s, 0.1 * found.actual_s);
  expect_sum(found);
}

TEST(KeptPlan, OfAnotherJobIsRefused) {
  const KeptPlan plan = invented_plan();
  RunFacts run = run_of(4);
  run.global_batch = 32;
  const auto check = check_kept_plan(run, course_of(4), plan);
  ASSERT_FALSE(check.ok());
  EXPECT_NE(check.error().detail.find("net-8 with batches of 64, and the run trains net-8 with "
                                      "batches of 32"),
            std::string::npos)
      << check.error().detail;
}

}  // namespace
}  // namespace mayfly::planner
