#include "engine/server_roles/ps_roles.hpp"
#include "engine/server_roles/ps_servers.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

using Shards = std::vector<std::uint32_t>;
using Members = std::vector<std::pair<int, std::string>>;

std::string server(std::uint32_t index, bool computes = false, bool is_followed = true) {
  const std::string name = std::to_string(index);
  ServerAddress address{index, {"lead" + name}, {}, computes};
  if (is_followed) {
    address.followers = {"follow" + name};
  }
  return to_text(address);
}

elastic::View view_of(std::uint64_t id, const Members& members) {
  elastic::View view;
  view.id = ViewId{id};
  for (const auto& [member, address] : members) {
    view.members.push_back({MemberId{static_cast<std::uint64_t>(member)}, address, {}, 0, 0, {}});
  }
  return view;
}

JobConfig config_of(std::uint32_t servers, std::uint32_t replicas) {
  JobConfig config;
  config.sync = "bsp";
  config.ps = servers;
  config.ps_replicas = replicas;
  return config;
}

TEST(PsRoles, OfServersOfTheirOwnAndOfWorkers) {
  PsRoles roles(config_of(2, 1));
  EXPECT_EQ(roles.role_of(MemberId{1}), std::nullopt) << "no view yet";
  const auto news =
      roles.follow(view_of(1, {{1, kPsWorkerAddress}, {2, server(1)}, {3, server(0)}}));
  ASSERT_TRUE(news.has_value());
  EXPECT_TRUE(news->lost.empty());
  ASSERT_EQ(news->servers.size(), 2u);
  EXPECT_EQ(news->servers[0].server, 0u);
  EXPECT_EQ(news->servers[0].member, MemberId{3});
  EXPECT_EQ(news->servers[0].role, (PsRole{false, 0, {0}, {1}}));
  EXPECT_EQ(news->servers[1].member, MemberId{2});
  EXPECT_EQ(news->servers[1].role, (PsRole{false, 1, {1}, {0}}));
  EXPECT_EQ(news->detail,
            "server 0 is member 3 and leads shard 0, follows shard 1; server 1 is member 2 and "
            "leads shard 1, follows shard 0");
  EXPECT_EQ(roles.role_of(MemberId{1}), (PsRole{true, std::nullopt, {}, {}}));
  EXPECT_EQ(roles.role_of(MemberId{2}), (PsRole{false, 1, {1}, {0}}));
  EXPECT_EQ(name_of(*roles.role_of(MemberId{2})), "server");
  EXPECT_EQ(roles.role_of(MemberId{4}), std::nullopt);
}

TEST(PsRoles, AreNewsWhenAServerIsLostAndOnlyThen) {
  PsRoles roles(config_of(2, 1));
  (void)roles.follow(view_of(1, {{1, kPsWorkerAddress}, {2, server(0)}, {3, server(1)}}));
  EXPECT_FALSE(roles.follow(
      view_of(2, {{1, kPsWorkerAddress}, {2, server(0)}, {3, server(1)}, {4, kPsWorkerAddress}})));
  const auto news = roles.follow(view_of(3, {{3, server(1)}, {4, kPsWorkerAddress}}));
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(news->lost, Shards{0});
  EXPECT_EQ(news->detail, "server 0 is lost, server 1 leads shard 0, shard 1 without a follower");
  EXPECT_EQ(roles.role_of(MemberId{3}), (PsRole{false, 1, {0, 1}, {}}));
  EXPECT_EQ(roles.role_of(MemberId{2}), std::nullopt);
  // A member that takes the lost server's number is no server of the job.
  EXPECT_FALSE(roles.follow(view_of(4, {{3, server(1)}, {4, kPsWorkerAddress}, {5, server(0)}})));
  EXPECT_EQ(roles.role_of(MemberId{5}), (PsRole{false, std::nullopt, {}, {}}));
}

TEST(PsRoles, OfOneThatIsLostWithoutAFollowerSayWhichShards) {
  PsRoles roles(config_of(2, 0));
  (void)roles.follow(view_of(
      1, {{1, kPsWorkerAddress}, {2, server(0, false, false)}, {3, server(1, false, false)}}));
  const auto news = roles.follow(view_of(2, {{1, kPsWorkerAddress}, {3, server(1, false, false)}}));
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(news->detail, "server 0 is lost, and with it shard 0");
}

TEST(PsRoles, OfWorkersThatCarryServersAreBoth) {
  JobConfig config = config_of(0, 1);
  config.workers = 2;
  PsRoles roles(config);
  const auto news = roles.follow(view_of(1, {{1, server(0, true)}, {2, server(1, true)}}));
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(news->detail,
            "server 0 is member 1, a worker, and leads shard 0, follows shard 1; server 1 is "
            "member 2, a worker, and leads shard 1, follows shard 0");
  EXPECT_EQ(name_of(*roles.role_of(MemberId{1})), "worker+server");
  // Member 2 was evicted and joins again with its id, without its server.
  const auto lost = roles.follow(view_of(3, {{1, server(0, true)}, {2, kPsWorkerAddress}}));
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->lost, Shards{1});
  EXPECT_EQ(name_of(*roles.role_of(MemberId{2})), "worker");
  EXPECT_EQ(roles.role_of(MemberId{1}), (PsRole{true, 0, {0, 1}, {}}));
}

TEST(PsRoles, SayNothingOfAJobThatLacksAServer) {
  PsRoles roles(config_of(2, 0));
  const auto torn = view_of(1, {{1, kPsWorkerAddress}, {2, server(0, false, false)}});
  EXPECT_FALSE(roles.follow(torn));
  EXPECT_FALSE(roles.follow(torn));
  EXPECT_EQ(roles.role_of(MemberId{1}), (PsRole{true, std::nullopt, {}, {}}));
}

}  // namespace
}  // namespace mayfly::engine
