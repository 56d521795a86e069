#include "engine/run/job_news.hpp"

#include <gtest/gtest.h>

#include <future>

namespace mayfly::engine {
namespace {

Instant soon() {
  return monotonic_now() + milliseconds(1);
}

Instant late() {
  return monotonic_now() + seconds(60);
}

TEST(JobNews, AreWaitedForUntilTheDeadline) {
  JobNews news;
  const Instant deadline = soon();
  EXPECT_FALSE(news.wait(deadline).has_value());
  EXPECT_GE(monotonic_now(), deadline);
  EXPECT_FALSE(news.wait(deadline - seconds(1)).has_value()) << "which may have passed";
}

TEST(JobNews, EndOneWaitEach) {
  JobNews news;
  news.announce();
  news.announce();
  const Instant begun = monotonic_now();
  EXPECT_FALSE(news.wait(late()).has_value());
  EXPECT_LT(monotonic_now() - begun, seconds(30));
  const Instant deadline = soon();
  (void)news.wait(deadline);
  EXPECT_GE(monotonic_now(), deadline) << "they were seen";
}

TEST(JobNews, TheEndIsTheLast) {
  JobNews news;
  EXPECT_FALSE(news.end().has_value());
  std::future<std::optional<JobEnd>> end =
      std::async(std::launch::async, [&news] { return news.wait(late()); });
  news.end_with({elastic::Outcome::kStopped, "by the user"});
  ASSERT_TRUE(end.get().has_value());
  EXPECT_EQ(news.wait(late())->detail, "by the user") << "no further wait lasts";
  EXPECT_EQ(news.end()->outcome, elastic::Outcome::kStopped);
}

}  // namespace
}  // namespace mayfly::engine
