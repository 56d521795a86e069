// Predictions, from the records of a run, of its steps with other workers, loading or storage.

#include "observe/core/what_if.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/observe/run_text.hpp"

namespace mayfly::observe {
namespace {

using ::testing::HasSubstr;

std::string member_line(int member, double t, double fetch_ms, double compute_ms,
                        const char* phase = "active", int microbatches = 4) {
  return fmt::format(
      R"({{"t": {}, "member": {}, "host": "a", "phase": "{}", "joined": 0, )"
      R"("microbatches": {}, "microbatch_ms": 10, "stages": {{"fetch_ms": {}, )"
      R"("prep_ms": 0, "compute_ms": {}, "compute_cpu_ms": 2, "bytes": 100000, "load_threads": 1, )"
      R"("compute_threads": 1, "ahead": 4, "yields": false}}, "steps": 10, )"
      R"("samples": 80}})",
      t, member, phase, microbatches, fetch_ms, compute_ms);
}

/// A run of two workers with 4 microbatches each. A microbatch takes 10 ms to compute and
/// `fetch_ms` to load. A step of 100 images took `step_ms`, with 4 ms for messages and 1 ms for the
/// update.
Feed run_of(double fetch_ms, double step_ms) {
  Feed feed;
  begin(feed);
  for (int member = 1; member <= 2; ++member) {
    feed.event(event_line(0, "connected", fmt::format(R"("member": {}, "detail": "a")", member)));
    feed.fold.member(member_line(member, 1, fetch_ms, 10), 0);
  }
  feed.event(event_line(0.5, "view", view_more(0, "[1, 2]")));
  feed.steps(1, 10,
             fmt::format(R"("before": {{"slowest": 1, "compute_ms": {}, "fetch_ms": 0, )"
                         R"("prep_ms": 0, "exchange_ms": 4, "update_ms": 1}})",
                         step_ms - 5));
  return feed;
}

TEST(WhatIf, QuestionsAreReadAndRefused) {
  const Result<WhatIf> all = parse_what_if("loaders=4,cached=50%,storage=2.5MB/s,workers=6");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all.value().loaders, 4U);
  EXPECT_EQ(all.value().cached, 0.5);
  EXPECT_EQ(all.value().storage, 2.5e6);
  EXPECT_EQ(all.value().workers, 6U);
  EXPECT_EQ(parse_what_if("without=0").value().without, 0U);
  for (const char* wrong : {"", "loaders", "loaders=0", "loaders=1.5", "cached=0.5", "cached=101%",
                            "storage=5", "storage=-1MB/s", "speed=2", "loaders=1,loaders=2",
                            "loaders=2,,", "workers=2,without=1", "workers=nan"}) {
    const Result<WhatIf> parsed = parse_what_if(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_EQ(parsed.error().code, Errc::kInvalidInput);
  }
}

TEST(WhatIf, OfARunThatComputesAllTheTimeNothingOfLoadingHelps) {
  const Result<RecordedSteps> steps = recorded_steps(run_of(2, 45).fold);
  ASSERT_TRUE(steps.ok()) << steps.error().detail;
  EXPECT_NEAR(steps.value().recorded_ms, 45, 1e-9);
  EXPECT_NEAR(steps.value().replayed_ms, 45, 0.1);
  EXPECT_NEAR(answer(steps.value(), parse_what_if("cached=100%").value()).value().step_ms, 45, 0.5);
  EXPECT_FALSE(advice(steps.value()).has_value());
  const WhatIfAnswer as_was = as_recorded(steps.value());
  EXPECT_NEAR(as_was.images_per_second, 100 / 0.045, 1e-6);
  EXPECT_FALSE(as_was.epoch_cost.has_value()) << "no price is known";
}

TEST(WhatIf, MembersAreThoseOfTheEnd) {
  Feed feed = run_of(2, 45);
  feed.event(event_line(2, "lost", R"("member": 2, "detail": "it died")"));
  EXPECT_EQ(recorded_steps(feed.fold).value().pipeline.workers.size(), 1U);
  feed.event(event_line(3, "disconnected", R"("member": 1, "detail": "End of file")"));
  feed.event(event_line(3, "ended"));
  EXPECT_EQ(recorded_steps(feed.fold).value().pipeline.workers.size(), 1U);
}

TEST(WhatIf, WorkersAreThoseOfTheLastPart) {
  Feed feed = run_of(2, 45);
  begin(feed, 100);
  feed.event(event_line(100, "connected", R"("member": 1, "detail": "b")"));
  feed.fold.member(member_line(1, 101, 2, 10), 500);
  feed.event(event_line(101, "view", view_more(10, "[1]", R"(["b"])")));
  feed.steps(11, 20, R"("before": {"slowest": 1, "compute_ms": 40, "update_ms": 1})", 91);
  const Result<RecordedSteps> steps = recorded_steps(feed.fold);
  ASSERT_TRUE(steps.ok()) << steps.error().detail;
  ASSERT_EQ(steps.value().pipeline.workers.size(), 1U);
  EXPECT_EQ(steps.value().pipeline.workers[0].host, "b");
  EXPECT_NEAR(steps.value().recorded_ms, 41, 1e-9);
}

TEST(WhatIf, APartWithoutStepsIsNotTheLast) {
  Feed feed = run_of(2, 45);
  feed.event(event_line(2, "ended"));
  begin(feed, 100);
  feed.event(event_line(100, "connected", R"("member": 1, "detail": "b")"));
  feed.fold.member(member_line(1, 101, 2, 10), 500);
  feed.event(event_line(101, "ended"));
  const Result<RecordedSteps> steps = recorded_steps(feed.fold);
  ASSERT_TRUE(steps.ok()) << steps.error().detail;
  ASSERT_EQ(steps.value().pipeline.workers.size(), 2U);
  EXPECT_EQ(steps.value().pipeline.workers[0].host, "a");
}

TEST(WhatIf, SlowStorageIsNamedWithTheSmallestRemedy) {
  // Loading takes 30 ms for each of 4 microbatches, and the rest of the step takes 5 ms.
  const Result<RecordedSteps> steps = recorded_steps(run_of(30, 125).fold);
  ASSERT_TRUE(steps.ok()) << steps.error().detail;
  const auto step_with = [&](const char* question) {
    return answer(steps.value(), parse_what_if(question).value()).value().step_ms;
  };
  EXPECT_LT(step_with("cached=100%"), 0.8 * step_with("cached=0%"));
  EXPECT_LT(step_with("loaders=4"), 0.8 * step_with("loaders=1"));
  EXPECT_GT(step_with("storage=1MB/s"), 350) << "100 ms for each of 4 microbatches";
  const std::optional<Advice> found = advice(steps.value());
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->change.loaders.has_value() || found->change.cached.has_value());
  EXPECT_LT(found->answer.step_ms, 0.5 * 125);
}

TEST(WhatIf, WorkersComeAndGo) {
  const RecordedSteps steps = recorded_steps(run_of(2, 45).fold).value();
  const auto ask = [&](const char* question) {
    return answer(steps, parse_what_if(question).value());
  };
  const WhatIfAnswer four = ask("workers=4").value();
  EXPECT_EQ(four.workers, 4U);
  EXPECT_NEAR(four.step_ms, 20 + 4 * (0.75 / 0.5) + 1, 0.5);
  const WhatIfAnswer one = ask("without=2").value();
  EXPECT_EQ(one.workers, 1U);
  EXPECT_NEAR(one.step_ms, 81, 0.5) << "all 8 microbatches, and no exchange";
  EXPECT_THAT(ask("without=7").error().detail, HasSubstr("worker 7"));
  EXPECT_THAT(ask("workers=9").error().detail, HasSubstr("8 microbatches"));
}

TEST(WhatIf, OneThatIsLateIsWorthGoingWithout) {
  Feed run = run_of(0.1, 205);
  run.fold.member(member_line(2, 2, 0.1, 50), 0);
  const std::optional<Advice> found = advice(recorded_steps(run.fold).value());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->change.without, 2U);
  EXPECT_NEAR(found->answer.step_ms, 81, 2);
}

TEST(WhatIf, TheShareIsThatOfBeforeTheEndOfTheJob) {
  Feed run = run_of(2, 45);
  for (const int member : {1, 2}) {
    run.fold.member(member_line(member, 2, 2, 10, "leaving", 0), 0);
    run.fold.member(member_line(member, 3, 2, 10, "ended", 0), 0);
  }
  ASSERT_TRUE(recorded_steps(run.fold).ok()) << recorded_steps(run.fold).error().detail;
  EXPECT_EQ(recorded_steps(run.fold).value().pipeline.workers.size(), 2U);
  // A member that observes has no share, and its earlier share does not count.
  run.fold.member(member_line(1, 4, 2, 10, "observing", 0), 0);
  EXPECT_EQ(recorded_steps(run.fold).value().pipeline.workers.size(), 1U);
}

TEST(WhatIf, RecordsThatLackSomethingAreNamed) {
  RunFold run;
  EXPECT_THAT(recorded_steps(run).error().detail, HasSubstr("no record shows"));
  Feed in_memory = run_of(2, 45);
  in_memory.fold.member(R"({"t": 2.0, "member": 1, "host": "a", "phase": "active", "joined": 0, )"
                        R"("microbatches": 4, "microbatch_ms": 10, "steps": 10, "samples": 80})",
                        0);
  EXPECT_THAT(recorded_steps(in_memory.fold).error().detail, HasSubstr("worker 1"));
  for (const auto& [fetch_ms, compute_ms] : {std::pair(-1.0, 10.0), {1e300, 10.0}, {2.0, 0.0}}) {
    Feed damaged = run_of(2, 45);
    damaged.fold.member(member_line(1, 2, fetch_ms, compute_ms), 0);
    EXPECT_THAT(recorded_steps(damaged.fold).error().detail, HasSubstr("is damaged"));
  }
}

}  // namespace
}  // namespace mayfly::observe
