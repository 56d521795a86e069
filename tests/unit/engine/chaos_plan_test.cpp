#include "engine/faults/chaos_plan.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

TEST(ChaosPlan, OrdersEventsByStep) {
  const auto plan = parse_chaos_plan("join@step=300,kill@step=200:worker=1,stop@step=40:for=500");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan.value().size(), 3u);
  EXPECT_EQ(plan.value()[0].kind, ChaosKind::kStop);
  EXPECT_EQ(plan.value()[0].for_ms, 500u);
  EXPECT_EQ(plan.value()[1].kind, ChaosKind::kKill);
  EXPECT_EQ(plan.value()[1].worker, 1u);
  EXPECT_EQ(plan.value()[2].step, 300u);
}

TEST(ChaosPlan, IsEmptyForAnEmptyText) {
  const auto plan = parse_chaos_plan("");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan.value().empty());
}

TEST(ChaosPlan, HangsAreForTheWorkerTheyName) {
  const auto plan = parse_chaos_plan("hang@step=20:worker=1:for=500,kill@step=3,hang@step=9");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(chaos_of_worker(plan.value(), 0), "hang@step=9:for=600000");
  EXPECT_EQ(chaos_of_worker(plan.value(), 1), "hang@step=20:for=500");
  EXPECT_EQ(chaos_of_worker(plan.value(), 2), "");
}

TEST(ChaosPlan, NamesTheEventThatIsWrong) {
  for (const char* text :
       {"explode@step=1", "kill", "kill@step=x", "kill@step=1:who=2", "kill@step=", "kill@worker=1",
        "kill@step=1:worker=4294967296", "stop@step=1:for=4294967296"}) {
    const auto plan = parse_chaos_plan(text);
    ASSERT_FALSE(plan.ok()) << text;
    EXPECT_NE(plan.error().detail.find("chaos event '"), std::string::npos);
    EXPECT_NE(plan.error().detail.find("an example"), std::string::npos);
  }
}

}  // namespace
}  // namespace mayfly::engine
