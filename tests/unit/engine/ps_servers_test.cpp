#include "engine/server_roles/ps_servers.hpp"

#include <gtest/gtest.h>

#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {
namespace {

ServerAddress server_at(std::uint32_t index) {
  const std::string name = std::to_string(index);
  return {index, {"lead" + name}, {"follow" + name}};
}

elastic::View servers_view(std::uint64_t id,
                           const std::vector<std::pair<int, std::string>>& members) {
  elastic::View view;
  view.id = ViewId{id};
  for (const auto& [member, address] : members) {
    view.members.push_back({MemberId{static_cast<std::uint64_t>(member)}, address, {}, 0, 0, {}});
  }
  return view;
}

JobConfig two_servers() {
  JobConfig config;
  config.ps = 2;
  config.ps_replicas = 1;
  return config;
}

TEST(ServerAddress, ReadsBackWithAndWithoutFollowers) {
  for (const ServerAddress& address :
       {ServerAddress{3, {"a", "b"}, {}}, ServerAddress{0, {"a", "b"}, {"c", "d"}},
        ServerAddress{7, {"a"}, {"c"}, true}}) {
    const auto back = parse_server_address(to_text(address));
    ASSERT_TRUE(back.ok() && back.value().has_value());
    EXPECT_EQ(*back.value(), address);
  }
  EXPECT_FALSE(parse_server_address("ps-worker").value().has_value());
  EXPECT_FALSE(parse_server_address("ps-server:1").ok());
  EXPECT_FALSE(parse_server_address("ps-server:x|a").ok());
}

TEST(PsServers, MoveAShardToItsFollowerAndNeverBack) {
  PsServers servers(two_servers());
  const std::string worker = kPsWorkerAddress;
  ASSERT_TRUE(servers
                  .follow(servers_view(
                      1, {{1, worker}, {2, to_text(server_at(0))}, {3, to_text(server_at(1))}}))
                  .ok());
  EXPECT_EQ(servers.leader_address(0), "lead0");
  EXPECT_EQ(servers.follower_address(0), "follow1");
  ASSERT_TRUE(servers.follow(servers_view(2, {{1, worker}, {3, to_text(server_at(1))}})).ok());
  EXPECT_EQ(servers.leader_address(0), "follow1");
  EXPECT_EQ(servers.follower_address(0), "");
  EXPECT_EQ(servers.follower_address(1), "") << "its follower was on the lost server";
  // A new process with the same index lacks the parameters that the job has trained.
  ASSERT_TRUE(servers
                  .follow(servers_view(
                      3, {{1, worker}, {3, to_text(server_at(1))}, {9, to_text(server_at(0))}}))
                  .ok());
  EXPECT_EQ(servers.leader_address(0), "follow1");
}

TEST(PsServers, AreMetByALateWorkerAsTheyAre) {
  PsServers servers(two_servers());
  ASSERT_TRUE(
      servers.follow(servers_view(7, {{3, to_text(server_at(1))}, {8, kPsWorkerAddress}})).ok());
  EXPECT_EQ(servers.leader_address(0), "follow1");
  EXPECT_EQ(servers.leader_address(1), "lead1");
}

TEST(PsServers, MustAllBeThereWithoutFollowers) {
  JobConfig config = two_servers();
  config.ps_replicas = 0;
  PsServers servers(config);
  const Result<void> known =
      servers.follow(servers_view(1, {{3, to_text({1, {"lead1"}, {}})}, {8, kPsWorkerAddress}}));
  ASSERT_FALSE(known.ok());
  EXPECT_EQ(known.error().code, Errc::kNotFound);
  PsServers twice(config);
  EXPECT_FALSE(twice
                   .follow(servers_view(
                       1, {{3, to_text({1, {"lead1"}, {}})}, {4, to_text({1, {"lead1"}, {}})}}))
                   .ok());
}

TEST(PsServers, OfAJobUnderWayAreNotThoseThatHaveComeLate) {
  JobConfig config = two_servers();
  config.ps_replicas = 0;
  const auto only_leads = [](std::uint32_t index) {
    return to_text({index, {"lead" + std::to_string(index)}, {}});
  };
  const std::vector<std::pair<int, std::string>> members = {{2, only_leads(0)},
                                                            {3, only_leads(1)},
                                                            {8, kPsWorkerAddress},
                                                            {9, only_leads(1)},
                                                            {10, only_leads(2)}};
  EXPECT_FALSE(PsServers(config).follow(servers_view(1, members)).ok()) << "a wrong --ps-index";
  PsServers servers(config);
  ASSERT_TRUE(servers.follow(servers_view(4, members)).ok());
  EXPECT_EQ(servers.leader_member(1), MemberId{3});
}

JobConfig colocated(std::uint32_t workers, std::uint32_t replicas) {
  JobConfig config;
  config.sync = "bsp";
  config.ps = 0;
  config.workers = workers;
  config.ps_replicas = replicas;
  return config;
}

ServerAddress carried(std::uint32_t index) {
  ServerAddress address = server_at(index);
  address.computes = true;
  return address;
}

TEST(ColocatedServers, AreAsManyAsWorkersAndThoseThatComeLaterCarryNone) {
  JobConfig config = colocated(3, 0);
  EXPECT_EQ(server_count(config), 3U);
  config.worker_number = 2;
  EXPECT_EQ(carried_server(config), 2U);
  config.worker_number = 3;
  EXPECT_FALSE(carried_server(config).has_value());
  config.ps = 1;
  config.worker_number = 0;
  EXPECT_FALSE(carried_server(config).has_value());
}

TEST(ColocatedServers, AreWorkersToo) {
  EXPECT_TRUE(is_worker(to_text(carried(1))));
  EXPECT_TRUE(is_worker(kPsWorkerAddress));
  EXPECT_FALSE(is_worker(to_text(server_at(1))));
  EXPECT_TRUE(has_server(to_text(carried(1))) && has_server(to_text(server_at(1))));
  EXPECT_FALSE(has_server(kPsWorkerAddress));
}

TEST(ColocatedServers, AreLostThoughTheirMemberComesBackWithoutThem) {
  PsServers servers(colocated(2, 1));
  ASSERT_TRUE(
      servers.follow(servers_view(1, {{1, to_text(carried(0))}, {2, to_text(carried(1))}})).ok());
  EXPECT_TRUE(servers.is_server(1, MemberId{2}));
  EXPECT_EQ(servers.leader_address(1), "lead1");
  // Member 2 was evicted in view 2, which this process has not received, and keeps its id.
  ASSERT_TRUE(
      servers.follow(servers_view(3, {{1, to_text(carried(0))}, {2, kPsWorkerAddress}})).ok());
  EXPECT_EQ(servers.leader_address(1), "follow0");
}

TEST(ColocatedServers, OfOneThatComesUnderATakenNumberAreNotTheJobs) {
  PsServers servers(colocated(2, 0));
  ASSERT_TRUE(
      servers
          .follow(servers_view(
              4, {{1, to_text(carried(0))}, {2, to_text(carried(1))}, {5, to_text(carried(0))}}))
          .ok());
  EXPECT_TRUE(servers.is_server(0, MemberId{1}));
  EXPECT_FALSE(servers.is_server(0, MemberId{5}));
}

TEST(ColocatedServers, MustAllBeThereWhichIsSaidWithTheFlag) {
  PsServers servers(colocated(2, 0));
  const Result<void> known =
      servers.follow(servers_view(1, {{1, to_text(carried(0))}, {2, kPsWorkerAddress}}));
  ASSERT_FALSE(known.ok());
  EXPECT_NE(known.error().detail.find("--worker-number"), std::string::npos);
}

TEST(ColocatedServers, AreRefusedWhereTheyCannotBe) {
  const auto complaint = [](const JobConfig& config) {
    const Result<void> early = validate(config);
    const Result<void> late = early.ok() ? check_servers(config) : early;
    return late.ok() ? std::string() : late.error().detail;
  };
  EXPECT_EQ(complaint(colocated(4, 0)), "");
  EXPECT_EQ(complaint(colocated(4, 1)), "");
  EXPECT_NE(complaint(colocated(1, 1)).find("at least two servers (workers 1)"), std::string::npos);
  EXPECT_NE(complaint(colocated(257, 0)).find("is not between 1 and 256"), std::string::npos);
  JobConfig backup = colocated(3, 0);
  backup.sync = "backup:2-of-3";
  EXPECT_NE(complaint(backup).find("one shard"), std::string::npos);
  JobConfig server = colocated(3, 0);
  server.ps_server = true;
  EXPECT_NE(complaint(server).find("each worker runs a parameter server"), std::string::npos);
  JobConfig spares = colocated(3, 0);
  spares.spares = 1;
  EXPECT_NE(complaint(spares).find("spares"), std::string::npos);
  JobConfig reduce = colocated(3, 0);
  reduce.sync.clear();
  EXPECT_NE(complaint(reduce).find("--sync or --phases"), std::string::npos);
}

TEST(PsServers, AreGivenUpForTheLastWorkerAloneAndOnlyIfTheyHaveFollowers) {
  const auto last = servers_view(
      2, {{1, kPsWorkerAddress}, {2, to_text(server_at(0))}, {3, to_text(server_at(1))}});
  const auto two = servers_view(1, {{1, kPsWorkerAddress},
                                    {2, to_text(server_at(0))},
                                    {3, to_text(server_at(1))},
                                    {4, kPsWorkerAddress}});
  PsServers servers(two_servers());
  ASSERT_TRUE(servers.follow(two).ok());
  EXPECT_EQ(servers.leader_member(1), MemberId{3});
  EXPECT_EQ(servers.server_to_give_up(two, 1), std::nullopt) << "the other worker may reach it";
  ASSERT_TRUE(servers.follow(last).ok());
  EXPECT_EQ(servers.server_to_give_up(last, 1), MemberId{3});
  const auto without = servers_view(3, {{1, kPsWorkerAddress}, {2, to_text(server_at(0))}});
  ASSERT_TRUE(servers.follow(without).ok());
  EXPECT_EQ(servers.leader_member(1), MemberId{2});
  EXPECT_EQ(servers.server_to_give_up(without, 1), std::nullopt) << "updates would be lost";

  JobConfig config = two_servers();
  config.ps_replicas = 0;
  const auto bare = servers_view(
      1,
      {{1, kPsWorkerAddress}, {2, to_text({0, {"lead0"}, {}})}, {3, to_text({1, {"lead1"}, {}})}});
  PsServers alone(config);
  ASSERT_TRUE(alone.follow(bare).ok());
  EXPECT_EQ(alone.server_to_give_up(bare, 0), std::nullopt);
}

TEST(LateServer, IsOneThatFindsAJobUnderWay) {
  elastic::View view = servers_view(1, {});
  EXPECT_FALSE(is_late_server(view, Step{0}));
  view.committed = Step{1};
  EXPECT_TRUE(is_late_server(view, Step{0}));
  EXPECT_TRUE(is_late_server(servers_view(2, {}), Step{0}));
}

}  // namespace
}  // namespace mayfly::engine
