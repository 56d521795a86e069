// Compares a plan with an invented run whose differences from the calibration are known.

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/runs/plan_check.hpp"
#include "planner/runs/run_fit.hpp"

namespace mayfly::planner {
namespace {

constexpr double kStepS = 0.5;  // with two workers; one worker alone takes twice as long

/// `slower`: the factor by which its steps take longer.
RunFacts two_workers(double slower) {
  RunFacts run;
  run.name = "a";
  run.date = "2026-01-02";
  run.model = "net-8";
  run.family = "plain";
  run.gflops = 3;
  run.params = 1e5;
  run.tensors = 20;
  run.microbatches = 8;
  run.threads = 1;
  run.machine = "box";
  for (const int members : {2, 1}) {
    run.steps.insert(run.steps.end(), 50, {kStepS * (members == 2 ? 1 : 2) * slower, members});
  }
  run.workers = {{"box", "", 0, 100, false, true}};
  run.starts = {{"box", "on_demand", 0, 4}};
  run.joins_s = {2};
  run.recoveries_s = {0.5};
  run.checkpoints_s = {0.25};
  run.weights_mb = 2;
  run.prices = {{"box", "on_demand", 3.6}};
  return run;
}

Calibration calibration_of(const RunFacts& run) {
  Calibration calibration;
  const auto fitted = fit_runs({run});
  EXPECT_TRUE(fitted.ok());
  for (const TableText& table : tables_of(fitted.value())) {
    EXPECT_TRUE(add_table(table.name, table.text, calibration).ok());
  }
  return calibration;
}

/// A hundred steps with two workers, of which one is lost after `before` steps.
RunCourse course_of(const RunFacts& run, double before, double slower) {
  RunCourse course;
  course.stretches = {{2, before}, {1, 100 - before}};
  course.start_s = 6;
  course.total_s = 6 + kStepS * slower * (before + 2 * (100 - before)) + run.recoveries_s[0] +
                   run.checkpoints_s[0];
  course.cost = 0.06;
  return course;
}

const CheckedQuantity& quantity(const PlanCheck& check, const std::string& name) {
  const auto found = std::ranges::find(check.quantities, name, &CheckedQuantity::name);
  EXPECT_NE(found, check.quantities.end()) << name;
  return *found;
}

double seconds_of(const PlanCheck& check, const std::string& cause) {
  const auto found = std::ranges::find(check.causes, cause, &TimeCause::name);
  EXPECT_NE(found, check.causes.end()) << cause;
  return found->seconds;
}

TEST(PlanCheck, ALostWorkerIsTheLargestCause) {
  const RunFacts run = two_workers(1);
  const auto check = check_plan(run, course_of(run, 50, 1), calibration_of(run));
  ASSERT_TRUE(check.ok()) << check.error().detail;
  const PlanCheck& found = check.value();
  EXPECT_NEAR(found.planned_s, 6 + 100 * kStepS + 0.25, 0.5);
  EXPECT_EQ(found.causes.front().name, "losses and joins of workers");
  EXPECT_NEAR(found.causes.front().seconds, 50 * kStepS, 0.5);
  EXPECT_NEAR(seconds_of(found, "recoveries"), 0.5, 1e-9);
  EXPECT_NEAR(seconds_of(found, "the start"), 0, 0.1);
  EXPECT_EQ(quantity(found, "speed of 1 worker").is_inside(), true);
  EXPECT_EQ(quantity(found, "speed of 2 workers").is_inside(), true);
  EXPECT_EQ(quantity(found, "total time without losses").is_inside(), false);
}

TEST(PlanCheck, CausesAddUpAndSlowStepsAreNamed) {
  const RunFacts run = two_workers(1.5);
  const auto check = check_plan(run, course_of(run, 90, 1.5), calibration_of(two_workers(1)));
  ASSERT_TRUE(check.ok()) << check.error().detail;
  const PlanCheck& found = check.value();
  EXPECT_EQ(found.causes.front().name, "speeds");
  EXPECT_NEAR(found.causes.front().seconds, kStepS * 0.5 * 110, 1);
  EXPECT_EQ(quantity(found, "speed of 2 workers").is_inside(), false);
  double sum = 0;
  for (const TimeCause& cause : found.causes) {
    sum += cause.seconds;
  }
  EXPECT_NEAR(sum, found.actual_s - found.planned_s, 1e-9);
}

TEST(PlanCheck, CostFollowsFromPricesAndTime) {
  RunFacts run = two_workers(1);
  const auto check = check_plan(run, course_of(run, 100, 1), calibration_of(run));
  ASSERT_TRUE(check.ok());
  const CheckedQuantity& cost = quantity(check.value(), "cost without losses");
  EXPECT_NEAR(cost.predicted->median, 2 * 1e-3 * check.value().planned_s, 1e-9);
  EXPECT_EQ(cost.actual, 0.06);
  run.has_provider = true;
  const auto of_provider = check_plan(run, course_of(run, 100, 1), calibration_of(run));
  EXPECT_NEAR(quantity(of_provider.value(), "cost without losses").predicted->median, 2 * 1e-3 * 60,
              1e-9)
      << "a minute of each server has to be paid";
}

TEST(PlanCheck, SaysWhatIsNotCompared) {
  RunFacts run = two_workers(1);
  const RunCourse course = course_of(run, 100, 1);
  const Calibration calibration = calibration_of(run);
  run.recoveries_s.clear();
  const auto check = check_plan(run, course, calibration);
  ASSERT_TRUE(check.ok());
  const CheckedQuantity& recovery = quantity(check.value(), "time lost by a loss");
  EXPECT_EQ(recovery.is_inside(), std::nullopt);
  EXPECT_EQ(recovery.missing, "the run does not record it");
  RunCourse resumed = course;
  resumed.was_resumed = true;
  EXPECT_FALSE(check_plan(run, resumed, calibration).ok());
  EXPECT_FALSE(check_plan(run, course, Calibration()).ok());
}

}  // namespace
}  // namespace mayfly::planner
