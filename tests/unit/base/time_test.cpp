#include "base/time.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace mayfly {
namespace {

TEST(Instant, AddsAndSubtractsDurations) {
  constexpr Instant start{1'000};
  constexpr Instant later = start + milliseconds(2);
  static_assert(later.ns == 2'001'000);
  static_assert(later - start == milliseconds(2));
  static_assert(later - milliseconds(2) == start);
  EXPECT_LT(start, later);
}

TEST(Duration, ConvertsWithFractions) {
  EXPECT_DOUBLE_EQ(to_ms(Duration(1'500'000)), 1.5);
  EXPECT_DOUBLE_EQ(to_seconds(milliseconds(250)), 0.25);
}

TEST(MonotonicNow, NeverGoesBackwards) {
  Instant before = monotonic_now();
  for (int i = 0; i < 1000; ++i) {
    const Instant now = monotonic_now();
    ASSERT_GE(now, before);
    before = now;
  }
}

TEST(ThreadCpu, PassesOnlyWhileTheThreadRuns) {
  const Instant before = thread_cpu_now();
  constexpr Duration kAsleep = milliseconds(200);
  std::this_thread::sleep_for(kAsleep);
  EXPECT_LT(thread_cpu_now() - before, kAsleep / 2);
  std::thread other([] {
    const Instant begin = thread_cpu_now();
    while (thread_cpu_now() - begin < milliseconds(200)) {
    }
  });
  other.join();
  EXPECT_LT(thread_cpu_now() - before, kAsleep / 2) << "of another thread";
}

TEST(WallClock, IsAfterThisTestWasWritten) {
  EXPECT_GT(wall_clock_seconds(), 1.7e9);
}

}  // namespace
}  // namespace mayfly
