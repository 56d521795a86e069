#include "engine/config/ps_settings.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

JobConfig asked(const std::string& order, const std::string& steps) {
  JobConfig config;
  config.workers = 8;
  config.global_batch = 1024;
  config.microbatch = 16;
  config.switch_order = order;
  config.train_steps = steps;
  return config;
}

TEST(SwitchOrder, CountsAspByPushesAsThePublishedLauncherDoes) {
  JobConfig config = asked("10", "400,61200");
  ASSERT_TRUE(spell_out_switch_order(config).ok());
  EXPECT_EQ(config.phases, "bsp:400steps,asp:7600steps");  // 60,800 pushes of 8 workers
  EXPECT_EQ(config.steps, 8000U);
  EXPECT_TRUE(config.switch_order.empty() && config.train_steps.empty());
}

TEST(SwitchOrder, MayGoBackAndForth) {
  JobConfig config = asked("101", "200,3240,3440");
  ASSERT_TRUE(spell_out_switch_order(config).ok());
  EXPECT_EQ(config.phases, "bsp:200steps,asp:380steps,bsp:200steps");
}

TEST(SwitchOrder, NotGivenChangesNothing) {
  JobConfig config;
  config.phases = "bsp:5%,asp";
  ASSERT_TRUE(spell_out_switch_order(config).ok());
  EXPECT_EQ(config.phases, "bsp:5%,asp");
}

TEST(SwitchOrder, IsRefusedIfItMeansNothing) {
  for (const auto& [order, steps] : {std::pair{"12", "1,2"},
                                     {"", "4"},
                                     {"10", "400"},
                                     {"10", "400,400"},
                                     {"10", "400,x"},
                                     {"10", ""},
                                     {"1", "0"},
                                     {"10", "400,500,600"}}) {
    JobConfig config = asked(order, steps);
    EXPECT_FALSE(spell_out_switch_order(config).ok()) << order << " " << steps;
  }
  JobConfig both = asked("1", "10");
  both.sync = "bsp";
  EXPECT_FALSE(spell_out_switch_order(both).ok());
}

}  // namespace
}  // namespace mayfly::engine
