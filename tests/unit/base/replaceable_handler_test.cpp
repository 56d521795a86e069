#include "base/replaceable_handler.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

namespace mayfly {
namespace {

TEST(ReplaceableHandler, AnswersWithTheHandlerThatWasSetLast) {
  ReplaceableHandler<std::string(const std::string& name)> greet;
  EXPECT_EQ(greet.call("a"), std::nullopt) << "there is none";
  greet.set([](const std::string& name) { return "hello " + name; });
  greet.set([](const std::string& name) { return "bye " + name; });
  EXPECT_EQ(greet.call("a"), "bye a");
  greet.set(nullptr);
  EXPECT_EQ(greet.call("a"), std::nullopt);
}

TEST(ReplaceableHandler, PassesOnWhatCannotBeCopied) {
  ReplaceableHandler<void(std::unique_ptr<int>)> take;
  EXPECT_FALSE(take.call(std::make_unique<int>(1)));
  int taken = 0;
  take.set([&taken](std::unique_ptr<int> number) { taken = *number; });
  EXPECT_TRUE(take.call(std::make_unique<int>(2)));
  EXPECT_EQ(taken, 2);
}

TEST(ReplaceableHandler, IsTakenAwayOnlyWhenItIsNotBeingCalled) {
  ReplaceableHandler<void()> handler;
  std::promise<void> called;
  std::promise<void> may_return;
  handler.set([&] {
    called.set_value();
    may_return.get_future().wait();
  });
  std::future<bool> answer = std::async(std::launch::async, [&] { return handler.call(); });
  called.get_future().wait();
  std::future<void> taken = std::async(std::launch::async, [&] { handler.set(nullptr); });
  EXPECT_EQ(taken.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  may_return.set_value();
  taken.wait();
  EXPECT_TRUE(answer.get());
  EXPECT_FALSE(handler.call());
}

}  // namespace
}  // namespace mayfly
