#include "engine/parameter_server/ps_servers.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

ServerAddress server(std::uint32_t index) {
  const std::string name = std::to_string(index);
  return {index, {"lead" + name}, {"follow" + name}};
}

elastic::View view_of(std::uint64_t id, const std::vector<std::pair<int, std::string>>& members) {
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
       {ServerAddress{3, {"a", "b"}, {}}, ServerAddress{0, {"a", "b"}, {"c", "d"}}}) {
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
  ASSERT_TRUE(
      servers.follow(view_of(1, {{1, worker}, {2, to_text(server(0))}, {3, to_text(server(1))}}))
          .ok());
  EXPECT_EQ(servers.leader_address(0), "lead0");
  EXPECT_EQ(servers.follower_address(0), "follow1");
  ASSERT_TRUE(servers.follow(view_of(2, {{1, worker}, {3, to_text(server(1))}})).ok());
  EXPECT_EQ(servers.leader_address(0), "follow1");
  EXPECT_EQ(servers.follower_address(0), "");
  EXPECT_EQ(servers.follower_address(1), "") << "its follower was on the lost server";
  // Another process under the same index has not what the job has trained.
  ASSERT_TRUE(
      servers.follow(view_of(3, {{1, worker}, {3, to_text(server(1))}, {9, to_text(server(0))}}))
          .ok());
  EXPECT_EQ(servers.leader_address(0), "follow1");
}

TEST(PsServers, AreMetByALateWorkerAsTheyAre) {
  PsServers servers(two_servers());
  ASSERT_TRUE(servers.follow(view_of(7, {{3, to_text(server(1))}, {8, kPsWorkerAddress}})).ok());
  EXPECT_EQ(servers.leader_address(0), "follow1");
  EXPECT_EQ(servers.leader_address(1), "lead1");
}

TEST(PsServers, MustAllBeThereWithoutFollowers) {
  JobConfig config = two_servers();
  config.ps_replicas = 0;
  PsServers servers(config);
  const Result<void> known =
      servers.follow(view_of(1, {{3, to_text({1, {"lead1"}, {}})}, {8, kPsWorkerAddress}}));
  ASSERT_FALSE(known.ok());
  EXPECT_EQ(known.error().code, Errc::kNotFound);
  PsServers twice(config);
  EXPECT_FALSE(
      twice.follow(view_of(1, {{3, to_text({1, {"lead1"}, {}})}, {4, to_text({1, {"lead1"}, {}})}}))
          .ok());
}

TEST(LateServer, IsOneThatFindsAJobUnderWay) {
  elastic::View view = view_of(1, {});
  EXPECT_FALSE(is_late_server(view, Step{0}));
  view.committed = Step{1};
  EXPECT_TRUE(is_late_server(view, Step{0}));
  EXPECT_TRUE(is_late_server(view_of(2, {}), Step{0}));
}

}  // namespace
}  // namespace mayfly::engine
