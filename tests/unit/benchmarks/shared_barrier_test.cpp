#include "benchmarks/ranks/shared_barrier.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::bench {
namespace {

using mayfly::test_support::TemporaryFolder;

Instant far() {
  return monotonic_now() + seconds(60);
}

TEST(SharedBarrier, NobodyLeavesBeforeAllHaveCome) {
  constexpr std::uint32_t kSize = 5;
  constexpr int kRounds = 200;
  const TemporaryFolder folder;
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kSize; ++i) {
    threads.emplace_back([&] {
      Result<SharedBarrier> barrier = SharedBarrier::open(folder / "barrier", kSize);
      ASSERT_TRUE(barrier.ok()) << barrier.error().detail;
      for (int round = 1; round <= kRounds; ++round) {
        ++arrived;
        ASSERT_TRUE(barrier.value().wait(far()).ok());
        early = early || arrived < round * static_cast<int>(kSize);
        ASSERT_TRUE(barrier.value().wait(far()).ok());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_FALSE(early);
}

TEST(SharedBarrier, GivesUpAtTheDeadline) {
  const TemporaryFolder folder;
  Result<SharedBarrier> barrier = SharedBarrier::open(folder / "barrier", 2);
  ASSERT_TRUE(barrier.ok());
  EXPECT_EQ(barrier.value().wait(monotonic_now() + milliseconds(5)).error().code, Errc::kDeadline);
}

TEST(SharedBarrier, NamesAPlaceItCannotUse) {
  const Result<SharedBarrier> barrier = SharedBarrier::open("/nonexistent/barrier", 2);
  ASSERT_FALSE(barrier.ok());
  EXPECT_NE(barrier.error().detail.find("/nonexistent/barrier"), std::string::npos);
}

}  // namespace
}  // namespace mayfly::bench
