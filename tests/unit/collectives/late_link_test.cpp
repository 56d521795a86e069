#include "collectives/late_link.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace mayfly::collectives {
namespace {

/// Completes every task at once, and notes when it was begun.
struct Begun {
  std::vector<Instant> at;
  bool aborted = false;
};

class PromptLink final : public RingLink {
 public:
  explicit PromptLink(Begun& begun) : begun_(begun) {}
  void begin(const RingTask& /*task*/) override { begun_.at.push_back(monotonic_now()); }
  Result<bool> advance(std::optional<Instant> /*until*/) override {
    return begun_.aborted ? Result<bool>(Error{Errc::kAborted, "aborted"}) : Result<bool>(true);
  }
  bool can_pause() const override { return true; }
  void abort() noexcept override { begun_.aborted = true; }

 private:
  Begun& begun_;
};

TEST(LateLink, BeginsEachOperationSoMuchLater) {
  Begun begun;
  const auto link =
      make_late_link(std::make_unique<PromptLink>(begun), [] { return milliseconds(20); });
  for (int i = 0; i < 3; ++i) {
    const RingTask task;
    const Instant asked = monotonic_now();
    link->begin(task);
    ASSERT_TRUE(link->advance(std::nullopt).value());
    EXPECT_GE(begun.at.back() - asked, milliseconds(20));
  }
  EXPECT_EQ(begun.at.size(), 3U);
}

TEST(LateLink, CanBeLeftAndContinued) {
  Begun begun;
  const auto link =
      make_late_link(std::make_unique<PromptLink>(begun), [] { return milliseconds(50); });
  const RingTask task;
  link->begin(task);
  EXPECT_FALSE(link->advance(monotonic_now()).value());
  EXPECT_FALSE(link->advance(monotonic_now() + milliseconds(1)).value());
  EXPECT_TRUE(begun.at.empty());
  EXPECT_TRUE(link->advance(std::nullopt).value());
  EXPECT_EQ(begun.at.size(), 1U);
}

TEST(LateLink, IsAbortedWhileItWaits) {
  Begun begun;
  const auto link =
      make_late_link(std::make_unique<PromptLink>(begun), [] { return seconds(600); });
  const RingTask task;
  link->begin(task);
  std::thread other([&] { link->abort(); });
  const Result<bool> done = link->advance(std::nullopt);
  other.join();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Errc::kAborted);
}

}  // namespace
}  // namespace mayfly::collectives
