#include "engine/training/recent_work.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

Instant moment(int ms) {
  return Instant{} + milliseconds(10'000 + ms);
}

/// Microbatches that took 3 ms each to load, and others that took 5 ms each to compute.
WorkDone work(std::uint64_t loaded, std::uint64_t computed) {
  const auto times = [](std::uint64_t count, int ms) {
    return milliseconds(static_cast<int>(count) * ms);
  };
  return {{loaded, 100 * loaded, times(loaded, 2), times(loaded, 1)},
          {computed, times(computed, 5), times(computed, 4)}};
}

TEST(RecentWorkTest, IsOfTheLastOneOrTwoIntervals) {
  RecentWork recent;
  EXPECT_EQ(recent.until(moment(0), work(2, 1)).loaded.microbatches, 2);
  EXPECT_EQ(recent.until(moment(1000), work(12, 11)).loaded.microbatches, 12);
  EXPECT_EQ(recent.until(moment(2000), work(22, 21)).loaded.microbatches, 20);
  EXPECT_EQ(recent.until(moment(3900), work(42, 41)).loaded.microbatches, 40);
  const WorkDone done = recent.until(moment(4100), work(52, 50));
  EXPECT_EQ(done.loaded.microbatches, 30);
  EXPECT_EQ(done.loaded.bytes, 3000);
  EXPECT_EQ(done.loaded.fetch, milliseconds(60));
  EXPECT_EQ(done.loaded.prep, milliseconds(30));
  EXPECT_EQ(done.computed.microbatches, 29);
  EXPECT_EQ(done.computed.time, milliseconds(145));
  EXPECT_EQ(done.computed.processor, milliseconds(116));
}

TEST(RecentWorkTest, GoesBackToWhenImagesWereLoaded) {
  RecentWork recent;
  (void)recent.until(moment(0), work(8, 1));
  (void)recent.until(moment(2000), work(16, 2));
  // The images of the following steps have all been loaded ahead.
  for (int step = 3; step <= 16; ++step) {
    const WorkDone done =
        recent.until(moment(2000 * step), work(16, static_cast<std::uint64_t>(step)));
    EXPECT_EQ(done.loaded.microbatches, 8);
    EXPECT_EQ(done.computed.microbatches, step - 1);
  }
}

TEST(RecentWorkTest, GoesBackToWhenMicrobatchesWereComputed) {
  RecentWork recent;
  for (int second = 0; second < 10; ++second) {
    EXPECT_EQ(recent.until(moment(1000 * second), work(static_cast<std::uint64_t>(second), 0))
                  .loaded.microbatches,
              second);
  }
  EXPECT_EQ(recent.until(moment(10'000), work(10, 1)).loaded.microbatches, 10);
}

}  // namespace
}  // namespace mayfly::engine
