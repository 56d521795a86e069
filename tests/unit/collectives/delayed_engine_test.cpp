#include "collectives/group_engine.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace mayfly::collectives {
namespace {

/// The record of a PromptEngine, which completes every operation at once: when each was begun.
struct Begun {
  std::vector<Instant> at;
  bool aborted = false;
};

class PromptEngine final : public GroupEngine {
 public:
  explicit PromptEngine(Begun& begun) : begun_(begun) {}
  void begin(const Operation& /*task*/) override { begun_.at.push_back(monotonic_now()); }
  Result<bool> advance(std::optional<Instant> /*until*/) override {
    return begun_.aborted ? Result<bool>(Error{Errc::kAborted, "aborted"}) : Result<bool>(true);
  }
  bool returns_by(std::optional<Instant> /*until*/) const override { return true; }
  void abort() noexcept override { begun_.aborted = true; }

 private:
  Begun& begun_;
};

TEST(DelayedEngine, BeginsEachOperationSoMuchLater) {
  Begun begun;
  const auto engine =
      make_delayed_engine(std::make_unique<PromptEngine>(begun), [] { return milliseconds(20); });
  for (int i = 0; i < 3; ++i) {
    const Operation operation;
    const Instant asked = monotonic_now();
    engine->begin(operation);
    ASSERT_TRUE(engine->advance(std::nullopt).value());
    EXPECT_GE(begun.at.back() - asked, milliseconds(20));
  }
  EXPECT_EQ(begun.at.size(), 3U);
}

TEST(DelayedEngine, CanBeLeftAndContinued) {
  Begun begun;
  const auto engine =
      make_delayed_engine(std::make_unique<PromptEngine>(begun), [] { return milliseconds(50); });
  const Operation operation;
  engine->begin(operation);
  EXPECT_FALSE(engine->advance(monotonic_now()).value());
  EXPECT_FALSE(engine->advance(monotonic_now() + milliseconds(1)).value());
  EXPECT_TRUE(begun.at.empty());
  EXPECT_TRUE(engine->advance(std::nullopt).value());
  EXPECT_EQ(begun.at.size(), 1U);
}

TEST(DelayedEngine, IsAbortedWhileItWaits) {
  Begun begun;
  const auto engine =
      make_delayed_engine(std::make_unique<PromptEngine>(begun), [] { return seconds(600); });
  const Operation operation;
  engine->begin(operation);
  std::thread other([&] { engine->abort(); });
  const Result<bool> done = engine->advance(std::nullopt);
  other.join();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Errc::kAborted);
}

}  // namespace
}  // namespace mayfly::collectives
