#include "engine/cloud/server_target.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

JobConfig config_with_servers(std::uint32_t servers) {
  JobConfig config;
  config.sync = "bsp";
  config.ps = servers;
  config.evaluators = 1;
  return config;
}

std::vector<elastic::MemberStatus> members_with(std::initializer_list<std::uint64_t> ids) {
  std::vector<elastic::MemberStatus> members;
  for (const std::uint64_t id : ids) {
    members.emplace_back().id = MemberId{id};
  }
  return members;
}

TEST(ServerTarget, CountsWorkersServersAndEvaluators) {
  ServerTarget target(config_with_servers(2), 4);
  EXPECT_EQ(target.workers(), 4U);
  EXPECT_EQ(target.for_training(), 6U);
  EXPECT_EQ(target.all(), 7U);
  target.set_workers(3);
  EXPECT_EQ(target.all(), 6U);
}

TEST(ServerTarget, AServerThatIsAddedForAnExchangeIsNotWantedForEver) {
  ServerTarget target(config_with_servers(0), 2);
  target.set_workers(3, 2);
  EXPECT_EQ(target.workers(), 3U);
  EXPECT_EQ(target.lasting_workers(), 2U) << "the coordinator may be lost before the exchange ends";
  target.set_workers(5);  // by a user
  EXPECT_EQ(target.lasting_workers(), 5U);
}

TEST(ServerTarget, LeavesOutEvaluatorsWithOffersOfTheirOwn) {
  JobConfig config = config_with_servers(0);
  config.sync.clear();
  config.evaluator_offers = "x@a:spot=0.1";
  EXPECT_EQ(ServerTarget(config, 4).all(), 4U);
}

TEST(ServerTarget, ALostParameterServerIsNotWantedAnyMore) {
  ServerTarget target(config_with_servers(2), 4);
  target.saw_parameter_server(MemberId{1});
  target.saw_parameter_server(MemberId{2});
  EXPECT_FALSE(target.follow_losses(members_with({1, 2, 3}), 2));
  EXPECT_TRUE(target.follow_losses(members_with({2, 3}), 2)) << "no view says so yet";
  EXPECT_EQ(target.for_training(), 5U);
  EXPECT_FALSE(target.follow_losses(members_with({2, 3}), 1)) << "it is the same one";
  EXPECT_FALSE(target.follow_losses(members_with({1, 2, 3}), 2)) << "it does not come back";
  EXPECT_TRUE(target.follow_losses(members_with({2, 3}), 0)) << "a view says so first";
  EXPECT_EQ(target.for_training(), 4U);
}

}  // namespace
}  // namespace mayfly::engine
