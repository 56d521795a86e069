// The remaining time and cost of a job whose true values are known.

#include "planner/runs/remaining.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::kHour;

const std::string kPresentOffer = "m0 in z0 (spot)";

/// A run with four members and one step per second. The speeds of its windows of 20 steps differ by
/// a few per cent.
RestOfJob rest_of(double steps_left) {
  RestOfJob rest;
  rest.steps_left = steps_left;
  rest.window_speeds = {0.97, 1.03, 1.0, 0.99, 1.01, 1.02, 0.98};
  rest.window_steps = 20;
  rest.members = rest.members_soon = 4;
  rest.machine = "m0";
  for (int i = 0; i < 4; ++i) {
    rest.servers.push_back({kPresentOffer, kHour});
  }
  rest.price_per_hour = 8;
  return rest;
}

KeptPlan plan_of(double mean_lifetime_h) {
  KeptPlan plan;
  plan.plan = "4 x m0";
  plan.steps = 2e6;
  plan.time_s = {1.9e6, 2e6, 2.6e6};
  plan.workers = 4;
  plan.speeds = {{"m0", {0.25, 0.5, 0.75, 1}}};
  plan.speed_log_sd = 0.05;
  plan.recovery_s = 1;
  PlannedOffer offer;
  offer.offer = kPresentOffer;
  offer.machine = "m0";
  offer.hazard = {{kHour, 1 / mean_lifetime_h}};
  offer.start_s = {50, 60, 70};
  plan.offers = {offer};
  return plan;
}

double width(const PlannedRange& range) {
  return range.high - range.low;
}

Remaining left_of(const RestOfJob& rest, const KeptPlan* plan) {
  const Result<Remaining> left = remaining(rest, plan);
  EXPECT_TRUE(left.ok()) << left.error().detail;
  return left.ok() ? left.value() : Remaining();
}

TEST(Remaining, NothingIsLeftOfAJobThatIsDone) {
  const KeptPlan plan = plan_of(10);
  for (const KeptPlan* one : {static_cast<const KeptPlan*>(nullptr), &plan}) {
    RestOfJob rest = rest_of(0);
    rest.window_speeds.clear();
    const Remaining left = left_of(rest, one);
    EXPECT_EQ(left.time_s.low, 0);
    EXPECT_EQ(left.time_s.median, 0);
    EXPECT_EQ(left.time_s.high, 0);
    ASSERT_TRUE(left.cost);
    EXPECT_EQ(left.cost->high, 0);
    EXPECT_EQ(left.losses, 0);
  }
}

TEST(Remaining, TheRunsOwnSpeedAndPrices) {
  const Remaining left = left_of(rest_of(3600), nullptr);
  EXPECT_NEAR(left.time_s.median, 3600, 1e-6);
  EXPECT_LT(left.time_s.low, 3590);
  EXPECT_GT(left.time_s.high, 3610);
  ASSERT_TRUE(left.cost);
  EXPECT_NEAR(left.cost->median, 8, 1e-6);
  EXPECT_NE(left.rests_on.find("7 parts of 20 steps with 4 members; no plan"), std::string::npos)
      << left.rests_on;
}

TEST(Remaining, IntervalsShrinkAsWorkIsDone) {
  const KeptPlan plan = plan_of(10);
  for (const KeptPlan* one : {static_cast<const KeptPlan*>(nullptr), &plan}) {
    const double first = width(left_of(rest_of(1e6), one).time_s);
    double before = kNever;
    for (double steps = 1e6; steps >= 1; steps /= 1.5) {
      const Remaining left = left_of(rest_of(steps), one);
      EXPECT_LT(width(left.time_s), before) << steps;
      EXPECT_LE(left.time_s.low, left.time_s.median);
      EXPECT_LE(left.time_s.median, left.time_s.high);
      EXPECT_GE(left.time_s.low, 0);
      before = width(left.time_s);
    }
    EXPECT_LT(before, first / 500);
  }
}

TEST(Remaining, MoreOfTheRunSaysMore) {
  RestOfJob rest = rest_of(36000);
  const double few = width(left_of(rest, nullptr).time_s);
  for (int i = 0; i < 2; ++i) {
    rest.window_speeds.insert(rest.window_speeds.end(), rest.window_speeds.begin(),
                              rest.window_speeds.end());
  }
  EXPECT_LT(width(left_of(rest, nullptr).time_s), few);
}

TEST(Remaining, APlanThatIsWrongGivesWayToTheRun) {
  KeptPlan plan = plan_of(1e9);
  plan.speeds = {{"m0", {0.5, 1, 1.5, 2}}};
  plan.speed_log_sd = 0.01;
  const Remaining left = left_of(rest_of(3600), &plan);
  EXPECT_NEAR(left.time_s.median, 3600, 30);
  plan.speeds = {{"m0", {0.25, 0.5, 0.75, 1.01}}};
  const double near = left_of(rest_of(3600), &plan).time_s.median;
  EXPECT_LT(near, 3600) << "a plan that agrees takes part";
  EXPECT_GT(near, 3600 / 1.01);
}

TEST(Remaining, WhatSimulatedJobsDifferByIsInTheInterval) {
  KeptPlan plan = plan_of(1e9);
  plan.steps = 7200;
  plan.time_s = {7100, 7200, 10800};
  const Remaining half = left_of(rest_of(3600), &plan);
  EXPECT_NEAR(half.time_s.high - half.time_s.median, 3600 * std::sqrt(0.5), 300);
  EXPECT_LT(half.time_s.median - half.time_s.low, 200);
}

TEST(Remaining, WithoutStepsThePlanSpeaksAlone) {
  const KeptPlan plan = plan_of(1e9);
  RestOfJob rest = rest_of(3600);
  rest.window_speeds.clear();
  EXPECT_NEAR(left_of(rest, &plan).time_s.median, 3600, 1);
  const Result<Remaining> unknown = remaining(rest, nullptr);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().detail, "too few steps are on record yet");
}

TEST(Remaining, LossesAreExpectedByAgeAndCostTime) {
  const KeptPlan plan = plan_of(10);
  const Remaining left = left_of(rest_of(10 * kHour), &plan);
  // Each of four servers is lost once in ten hours. A loss costs a quarter of the speed until
  // another server has started, and stops the other members for a recovery.
  EXPECT_NEAR(left.losses, 4, 0.05);
  EXPECT_NEAR(left.time_s.median, 10 * kHour + left.losses * (60 / 4.0 + 1), 1);
  RestOfJob waiting = rest_of(3600);
  waiting.window_speeds.assign(7, 0.5);
  waiting.members = 2;
  waiting.members_soon = 4;
  const KeptPlan calm = plan_of(1e9);
  EXPECT_NEAR(left_of(waiting, &calm).time_s.median, 3600 + 60 / 2.0, 1)
      << "two servers are starting";
}

TEST(Remaining, ServersAreReplacedAtTheEndOfTheLongestLifetime) {
  PlannedOffer offer;
  offer.cap_s = 24 * kHour;
  EXPECT_EQ(expected_losses(offer, 0, 23 * kHour), 0);
  EXPECT_EQ(expected_losses(offer, 2 * kHour, 23 * kHour), 1);
  EXPECT_EQ(expected_losses(offer, 0, 49 * kHour), 2);
  offer.hazard = {{24 * kHour, 0.5}};
  EXPECT_NEAR(expected_losses(offer, 12 * kHour, 24 * kHour), 0.25 + 1 + 0.25, 1e-9);
  offer.shocks_per_s = 1 / kHour;
  EXPECT_NEAR(expected_losses(offer, 0, kHour), 1 + 0.5 / 24, 1e-9);
  offer.start_s = {360, 360, 360};
  EXPECT_NEAR(up_share(offer, 0), 1 / (1 + (1 + 0.5 / 24) / 10), 1e-9) << "a tenth of an hour each";
}

}  // namespace
}  // namespace mayfly::planner
