#include "observe/core/step_profile.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/unit/observe/run_text.hpp"

namespace mayfly::observe {
namespace {

namespace json = boost::json;

TEST(StepProfile, TimesOfStepsAreAddedByKindAndByTheirSlowestMember) {
  RunFold fold;
  fold.metric(R"({"step": 1, "t": 1, "samples": 8})", 0);
  fold.metric(R"({"step": 2, "t": 2, "samples": 8, "before": {"slowest": 3, "compute_ms": 8,
                  "fetch_ms": 0.75, "prep_ms": 0.25, "exchange_ms": 2, "update_ms": 0.5,
                  "held_up": {"member": 2, "ms": 1.5}}})",
              30);
  fold.metric(R"({"step": 3, "t": 3, "samples": 8, "before": {"slowest": 1, "compute_ms": 4}})",
              200);
  fold.metric(R"({"step": 4, "t": 4, "samples": 8, "before": {"compute_ms": 4}})", 300);
  fold.metric(R"({"step": 5, "t": 5, "samples": 8, "before": 7})", 400);
  const StepProfile& profile = fold.step_profile();
  EXPECT_EQ(profile.steps(), 2u);
  EXPECT_DOUBLE_EQ(profile.total(), 0.0155);
  EXPECT_EQ(profile.slowest().at(3).steps, 1u);
  EXPECT_DOUBLE_EQ(profile.slowest().at(3).seconds[0], 0.008);
  EXPECT_DOUBLE_EQ(profile.slowest().at(1).seconds[0], 0.004);
  EXPECT_DOUBLE_EQ(profile.seconds()[1], 0.00075);
  EXPECT_EQ(profile.held_up().at(2).steps, 1u);
  EXPECT_DOUBLE_EQ(profile.held_up().at(2).seconds, 0.0015);
}

json::object step_with_times(std::uint64_t step, std::uint64_t slowest, double compute_ms) {
  return {{"step", step},
          {"before", {{"slowest", slowest}, {"compute_ms", compute_ms}, {"update_ms", 1}}}};
}

TEST(StepProfile, StretchesHaveEveryStepOnceHoweverManyThereAre) {
  for (const std::uint64_t steps : {1U, 159U, 160U, 161U, 320U, 321U, 10'007U}) {
    StepProfile profile;
    for (std::uint64_t step = 1; step <= steps; ++step) {
      profile.add(step_with_times(step, step % 10 == 0 ? 7 : 2, step == 100 ? 500 : 10));
    }
    const std::vector<StepProfile::Stretch>& stretches = profile.stretches();
    ASSERT_LE(stretches.size(), StepProfile::kStretchesMax);
    ASSERT_GE(stretches.size(), std::min<std::size_t>(steps, StepProfile::kStretchesMax / 2));
    std::uint64_t next = 1;
    StepSeconds sum{};
    for (const StepProfile::Stretch& stretch : stretches) {
      EXPECT_EQ(stretch.first, next);
      EXPECT_EQ(stretch.steps, stretch.last - stretch.first + 1);
      next = stretch.last + 1;
      for (std::size_t part = 0; part < kStepParts; ++part) {
        sum[part] += stretch.seconds[part];
      }
    }
    EXPECT_EQ(next, steps + 1);
    for (std::size_t part = 0; part < kStepParts; ++part) {
      EXPECT_NEAR(sum[part], profile.seconds()[part], 1e-9 * (1 + sum[part]));
    }
    EXPECT_EQ(stretches.back().slowest(), steps == 160 ? 7U : 2U) << steps;
  }
}

TEST(StepProfile, StepsThatAreUndoneAreInNoStretch) {
  StepProfile profile;
  for (std::uint64_t step = 1; step <= 400; ++step) {
    profile.add(step_with_times(step, 1, 10));
  }
  profile.add(step_with_times(250, 2, 30));  // the job has gone back to an earlier step
  const std::vector<StepProfile::Stretch>& stretches = profile.stretches();
  EXPECT_EQ(stretches.back().first, 250U);
  EXPECT_EQ(stretches.back().slowest(), 2U);
  EXPECT_LT(stretches[stretches.size() - 2].last, 250U);
  EXPECT_EQ(profile.steps(), 401U) << "time that was spent all the same";
}

TEST(StepProfile, TimesOfStepsAreOfTheLastPartWhoseIdsBeginAnew) {
  Feed feed;
  begin(feed);
  feed.steps(1, 4, R"("before": {"slowest": 1, "compute_ms": 10})");
  begin(feed, 100);
  EXPECT_EQ(feed.fold.step_profile().steps(), 4U) << "no step of the new part is on record";
  feed.steps(5, 6, R"("before": {"slowest": 1, "compute_ms": 30})", 100);
  const StepProfile& profile = feed.fold.step_profile();
  EXPECT_EQ(profile.steps(), 2U);
  EXPECT_DOUBLE_EQ(profile.total(), 0.06);
  EXPECT_EQ(profile.slowest().at(1).steps, 2U);
  EXPECT_EQ(profile.stretches().size(), 6U) << "the course of the whole run";
}

TEST(StepProfile, APartWithoutStepsMixesNoOthers) {
  Feed feed;
  begin(feed);
  const std::uint64_t second = feed.metric_bytes + 100;
  const auto start = [&feed](double t, std::uint64_t bytes) {
    feed.event(event_line(t, "started", "\"metrics_bytes\": " + std::to_string(bytes)));
  };
  start(100, second);
  start(200, second + 100);  // without steps, and read together with the one before
  const auto step = [&feed](int number, int ms, std::uint64_t offset) {
    const std::string times =
        R"("before": {"slowest": 1, "compute_ms": )" + std::to_string(ms) + "}";
    feed.fold.metric(step_line(number, number, times), offset);
  };
  step(1, 10, 0);
  step(2, 10, 50);
  step(3, 30, second);
  const StepProfile& profile = feed.fold.step_profile();
  EXPECT_EQ(profile.steps(), 1U);
  EXPECT_DOUBLE_EQ(profile.total(), 0.03);
  EXPECT_FALSE(feed.fold.is_profiled(99));
  EXPECT_TRUE(feed.fold.is_profiled(100));
  EXPECT_FALSE(feed.fold.is_profiled(200));
}

TEST(StepProfile, BeforeTheFirstStepTheFirstPartIsTheProfiledOne) {
  Feed feed;
  EXPECT_TRUE(feed.fold.is_profiled(0)) << "there is no part yet";
  begin(feed);
  begin(feed, 100);
  EXPECT_TRUE(feed.fold.is_profiled(99));
  EXPECT_FALSE(feed.fold.is_profiled(100));
}

TEST(StepProfile, ALateRecordLeavesTheStretchesOfLaterSteps) {
  Feed feed;
  begin(feed);
  const auto steps = [&feed](int first, int last) {
    feed.steps(first, last, R"("before": {"slowest": 1, "compute_ms": 10})");
  };
  steps(2, 4);
  steps(6, 8);
  steps(5, 5);
  steps(1, 1);
  const std::vector<StepProfile::Stretch>& stretches = feed.fold.step_profile().stretches();
  ASSERT_EQ(stretches.size(), 6U);
  EXPECT_EQ(stretches.front().first, 1U);
  EXPECT_EQ(stretches[2].last, 5U);
  EXPECT_EQ(stretches[2].steps, 2U);
  EXPECT_EQ(stretches[3].first, 6U);
  EXPECT_EQ(stretches.back().last, 8U);
}

}  // namespace
}  // namespace mayfly::observe
