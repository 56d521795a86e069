#include "engine/run/member_roles.hpp"

#include <gtest/gtest.h>

#include "engine/server_roles/ps_servers.hpp"

namespace mayfly::engine {
namespace {

elastic::View view_of_worker_and_server() {
  elastic::View view;
  view.id = ViewId{1};
  view.members.push_back({MemberId{1}, kPsWorkerAddress, {}, 0, 0, {}});
  view.members.push_back({MemberId{2}, to_text(ServerAddress{0, {"lead"}, {}}), {}, 0, 0, {}});
  return view;
}

TEST(MemberRoles, TellWhichMembersAreParameterServers) {
  JobConfig config;
  config.sync = "bsp";
  config.ps = 1;
  MemberRoles roles(config);
  EXPECT_EQ(roles.servers_left(), 1U) << "it is waited for";
  EXPECT_FALSE(roles.is_server(MemberId{2}));
  EXPECT_TRUE(roles.follow(view_of_worker_and_server()).has_value());
  EXPECT_TRUE(roles.is_server(MemberId{2}));
  EXPECT_FALSE(roles.is_server(MemberId{1})) << "it has a role, but no server";
  EXPECT_TRUE(roles.role_of(MemberId{1})->computes);
  EXPECT_EQ(roles.servers_left(), 1U);
}

TEST(MemberRoles, AreNoneWithoutParameterServers) {
  MemberRoles roles{JobConfig()};
  EXPECT_FALSE(roles.follow(view_of_worker_and_server()).has_value());
  EXPECT_FALSE(roles.role_of(MemberId{1}).has_value());
  EXPECT_FALSE(roles.is_server(MemberId{2}));
  EXPECT_EQ(roles.servers_left(), 0U);
}

}  // namespace
}  // namespace mayfly::engine
