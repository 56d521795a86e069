// The figures that the benchmarks of elasticity compute from their observations.

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "benchmarks/elastic/event_report.hpp"
#include "benchmarks/elastic/goodput_model.hpp"
#include "benchmarks/elastic/step_log.hpp"

namespace mayfly::bench {
namespace {

Instant at_ms(double ms) {
  return Instant{static_cast<std::int64_t>(ms * 1e6)};
}

/// Steps of 100 ms in view 1 with two members, then of 150 ms in view 2 with one; the first step of
/// view 2 takes 450 ms.
std::vector<LoggedStep> two_views() {
  std::vector<LoggedStep> steps;
  double now = 0;
  for (std::uint64_t step = 1; step <= 10; ++step) {
    steps.push_back({step, 1, 2, 16, 100, at_ms(now += 100), ""});
  }
  for (std::uint64_t step = 11; step <= 20; ++step) {
    const double ms = step == 11 ? 450 : 150;
    steps.push_back({step, 2, 1, 16, ms, at_ms(now += ms), ""});
  }
  return steps;
}

TEST(StepLog, UndisturbedStepsAreThoseInTheMiddleOfAView) {
  EXPECT_DOUBLE_EQ(undisturbed_ms(two_views(), 2), 100);
  EXPECT_DOUBLE_EQ(undisturbed_ms(two_views(), 1), 150);
  EXPECT_DOUBLE_EQ(undisturbed_ms(two_views(), 3), 0);
}

TEST(StepLog, ADelayIsJudgedByTheUndisturbedStepsAroundIt) {
  std::vector<LoggedStep> steps;
  for (std::uint64_t step = 1; step <= 200; ++step) {  // the machine becomes slower half-way
    steps.push_back({step, 1, 2, 16, step <= 100 ? 100.0 : 150.0, at_ms(0), ""});
  }
  EXPECT_DOUBLE_EQ(undisturbed_near_ms(steps, 2, 20), 100);
  EXPECT_DOUBLE_EQ(undisturbed_near_ms(steps, 2, 190), 150);
  EXPECT_DOUBLE_EQ(undisturbed_near_ms(steps, 3, 190), 0);
  EXPECT_DOUBLE_EQ(undisturbed_near_ms(two_views(), 1, 1), 150) << "there are no nearer ones";
}

TEST(StepLog, WhatUndisturbedStepsAreLateIsTheNoiseInFiguresOfEvents) {
  std::vector<LoggedStep> steps;
  for (std::uint64_t step = 1; step <= 102; ++step) {
    steps.push_back({step, 1, 2, 16, step % 20 == 0 ? 130.0 : 100.0, at_ms(0), ""});
  }
  EXPECT_DOUBLE_EQ(undisturbed_late_ms(steps, 2, 0.5), 0);
  EXPECT_DOUBLE_EQ(undisturbed_late_ms(steps, 2, 0.99), 30);
  EXPECT_DOUBLE_EQ(undisturbed_late_ms(steps, 3, 0.99), 0);
}

TEST(StepLog, TheLastStepBeforeAMoment) {
  EXPECT_EQ(last_before(two_views(), at_ms(250))->step, 2u);
  EXPECT_FALSE(last_before(two_views(), at_ms(50)).has_value());
}

TEST(RecoveryTimes, WhatTheStepStillNeededAndWhatIsRedoneAreTakenOff) {
  LossSeen loss;
  loss.commit_before = at_ms(1000);
  loss.struck = at_ms(1030);
  loss.recovery.detected = at_ms(1031);
  loss.recovery.stopped = at_ms(1040);
  loss.recovery.step = at_ms(1150);
  loss.recovery.redone_microbatches = 3;
  const StepFacts facts{100, 12, 3, 1, 8};
  const LossTimes times = times_of(loss, facts);
  EXPECT_DOUBLE_EQ(times.detected_ms, 1);
  EXPECT_DOUBLE_EQ(times.stopped_ms, 10);
  EXPECT_DOUBLE_EQ(times.step_ms, 120);
  EXPECT_DOUBLE_EQ(times.still_needed_ms, 70);
  EXPECT_DOUBLE_EQ(times.redo_ms, 12);  // one microbatch for each worker
  EXPECT_DOUBLE_EQ(times.beyond_ms, 38);
}

TEST(RecoveryTimes, AnOverdueStepNeedsNothingMore) {
  LossSeen loss;
  loss.commit_before = at_ms(0);
  loss.struck = at_ms(500);
  loss.recovery.step = at_ms(510);
  const LossTimes times = times_of(loss, {100, 12, 3, 1, 8});
  EXPECT_DOUBLE_EQ(times.still_needed_ms, 0);
  EXPECT_DOUBLE_EQ(times.beyond_ms, 10);
}

/// The lost worker had contributed to step 7, so the first step of the next view is step 8.
TEST(RecoveryTimes, AStepThatIsCommittedAllTheSameIsNoDelayOfTheNextOne) {
  LossSeen loss;
  loss.commit_before = at_ms(1000);
  loss.step_before = Step{6};
  loss.struck = at_ms(1090);
  loss.recovery.committed = Step{7};
  loss.recovery.step = at_ms(1230);
  loss.recovery.redone_microbatches = 1;  // of step 8, which no worker had begun
  const LossTimes times = times_of(loss, {100, 12, 3, 1, 8});
  EXPECT_DOUBLE_EQ(times.steps_meanwhile, 1);
  EXPECT_DOUBLE_EQ(times.still_needed_ms, 110);
  EXPECT_DOUBLE_EQ(times.redo_ms, 0);
  EXPECT_DOUBLE_EQ(times.beyond_ms, 30);
}

TEST(RecoveryTimes, RedoingIsBoundedByThreadsAndByCores) {
  EXPECT_DOUBLE_EQ(least_redo_ms(0, {0, 10, 7, 1, 2}), 0);
  EXPECT_DOUBLE_EQ(least_redo_ms(1, {0, 10, 7, 1, 2}), 10) << "one thread computes it";
  EXPECT_DOUBLE_EQ(least_redo_ms(7, {0, 10, 7, 1, 2}), 35) << "seven threads share two cores";
  EXPECT_DOUBLE_EQ(least_redo_ms(8, {0, 10, 2, 1, 16}), 40) << "four in a row";
  EXPECT_DOUBLE_EQ(least_redo_ms(8, {0, 10, 2, 4, 16}), 10);
}

TEST(Goodput, RatesComeFromUndisturbedSteps) {
  const Rates rates(two_views());
  EXPECT_DOUBLE_EQ(rates.at(2), 160);
  EXPECT_DOUBLE_EQ(rates.at(1), 16 / 0.15);
  EXPECT_DOUBLE_EQ(rates.at(7), 160) << "the nearest smaller number";
  EXPECT_DOUBLE_EQ(rates.at(0), 0);
}

TEST(Goodput, TheIdealJobFollowsWhoIsAlive) {
  const Rates rates(two_views());
  const std::vector<AliveSince> alive = {{at_ms(0), 2}, {at_ms(1000), 1}};
  EXPECT_NEAR(ideal_samples(alive, rates, at_ms(500), at_ms(2500)), 80 + 160, 1e-6);
}

TEST(Goodput, AStallIsWhatTheStepAcrossAChangeTookTooLong) {
  elastic::Recovery recovery;
  recovery.new_view = ViewId{2};
  EXPECT_NEAR(stall_seconds(recovery, two_views()).value(), 0.3, 1e-9);
  recovery.new_view = ViewId{9};
  EXPECT_FALSE(stall_seconds(recovery, two_views())) << "a view without a step";
}

// Goal: a stall without undisturbed steps to compare it with is not measured, and is not zero.
TEST(Goodput, AStallWithoutUndisturbedStepsIsNotMeasured) {
  std::vector<LoggedStep> steps = two_views();
  steps.resize(12);  // the new view has no step after its second
  elastic::Recovery recovery;
  recovery.new_view = ViewId{2};
  EXPECT_FALSE(stall_seconds(recovery, steps));
  Stalls stalls;
  stalls.add(stall_seconds(recovery, steps));
  EXPECT_FALSE(stalls.mean_seconds());
  EXPECT_FALSE(stalls.p99_seconds());
  stalls.add(0.2);
  stalls.add(0.4);
  EXPECT_EQ(stalls.count(), 3U);
  EXPECT_EQ(stalls.unmeasured(), 1U);
  EXPECT_NEAR(stalls.mean_seconds().value(), 0.3, 1e-9);
  const std::vector<SpotLevel> market = {{0, 4, false}, {10'000, 3, true}, {20'000, 4, false}};
  EXPECT_FALSE(natural_goodput(market, {}, 0.1));
  EXPECT_TRUE(natural_goodput({{0, 4, false}, {10'000, 5, false}}, {}, 0.1));
}

TEST(Goodput, EachMomentOfTheMarketCostsTheStallOfItsKind) {
  const std::vector<SpotLevel> market = {
      {0, 4, false}, {10'000, 3, true}, {20'000, 4, false}, {100'000, 3, true}};
  EXPECT_NEAR(natural_goodput(market, 0.2, 0.1).value(), 1 - 0.5 / 100, 1e-9);
  EXPECT_EQ(natural_goodput({{0, 4, false}}, 1, 1), 1);
  EXPECT_EQ(natural_goodput(market, 1000, 1000), 0);
}

TEST(EventReport, LinesAndSummaryCarryEverySeries) {
  const std::vector<EventSeries> series = {{"step_ms", {1, 2, 3}}, {"redone", {0, 1, 0}}};
  EXPECT_EQ(event_lines({{"step_ms", {1.5}}}),
            "{\"kind\": \"event\", \"event\": 1, \"step_ms\": 1.5}\n");
  const std::string summary = summary_line({{"workers", 4}}, series);
  for (const char* field : {"\"workers\": 4", "\"events\": 3", "\"step_p50_ms\": 2,",
                            "\"step_max_ms\": 3,", "\"redone_p99\": 1,"}) {
    EXPECT_NE(summary.find(field), std::string::npos) << field << " in " << summary;
  }
}

}  // namespace
}  // namespace mayfly::bench
