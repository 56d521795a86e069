// Workers that do not name the server that they run on.

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::listed;
using test_support::PolicyHarness;
using test_support::two_zones;

/// Grants two servers. Then two workers join that do not name their server.
void settle_unnamed(PolicyHarness& policy) {
  const std::vector<policy_effect::Request> wanted = policy.requests;
  for (const policy_effect::Request& request : wanted) {
    policy.grant(request);
  }
  policy.feed(policy_event::Joined{MemberId{1}, ""});
  policy.feed(policy_event::Joined{MemberId{2}, ""});
}

TEST(UnnamedWorkers, AreNotCountedBesideTheServersThatTheyRunOn) {
  PolicyHarness policy(two_zones());
  settle_unnamed(policy);
  EXPECT_EQ(policy.status().staying, 2u);
  policy.wait(seconds(2000));
  EXPECT_TRUE(policy.releases.empty()) << "their servers are not surplus, and not late";
  EXPECT_TRUE(policy.drains.empty());
  EXPECT_EQ(policy.status().staying, 2u);
  EXPECT_EQ(policy.status().billing, 2u);
}

TEST(UnnamedWorkers, ThePersonHearsOfItOnce) {
  PolicyHarness policy(two_zones());
  policy.grant(std::vector(policy.requests)[0]);
  policy.feed(policy_event::Joined{MemberId{1}, ""});
  EXPECT_TRUE(policy.was_told("worker_unnamed"));
  policy.feed(policy_event::Joined{MemberId{2}, ""});
  EXPECT_FALSE(policy.was_told("worker_unnamed"));
}

TEST(UnnamedWorkers, AreReplacedAtOnceWhenOneIsLost) {
  PolicyHarness policy(two_zones());
  settle_unnamed(policy);
  policy.feed(policy_event::Gone{MemberId{1}});
  policy.wait(milliseconds(20));
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 1u);
  EXPECT_TRUE(policy.releases.empty()) << "nobody knows which server the other one runs on";
  policy.grant(std::vector(policy.requests)[0]);
  policy.feed(policy_event::Joined{MemberId{3}, ""});
  policy.wait(seconds(2000));
  EXPECT_TRUE(policy.releases.empty());
  EXPECT_EQ(policy.status().staying, 2u);
}

TEST(UnnamedWorkers, AreNotCountedBesideTheirServerWhenTheOneTheyWerePresumedOnEnds) {
  PolicyHarness policy(two_zones());
  std::vector<ServerStatus> servers;
  const std::vector<policy_effect::Request> wanted = policy.requests;
  for (const policy_effect::Request& request : wanted) {
    policy.grant(request);
    while (servers.size() < policy.servers_made) {
      servers.push_back(
          PolicyHarness::server("s" + std::to_string(servers.size() + 1), request.request));
    }
  }
  ASSERT_EQ(servers.size(), 2u);
  policy.feed(policy_event::Joined{MemberId{1}, ""});  // it runs on s2; the policy presumes s1
  servers[0].state = ServerState::kGone;
  policy.feed(policy_event::Listed{servers});
  EXPECT_EQ(policy.status().staying, 1u) << "s2 and its worker are one";
}

TEST(UnnamedWorkers, LeaveTheirServersToBeReleasedWithTheLastOfThem) {
  PolicyHarness policy(two_zones());
  settle_unnamed(policy);
  policy.feed(policy_event::Gone{MemberId{1}});
  policy.feed(policy_event::Gone{MemberId{2}});
  policy.feed(listed({"s1", "s2"}));
  policy.wait(seconds(14));
  EXPECT_TRUE(policy.releases.empty()) << "they may come back";
  policy.wait(seconds(2));
  EXPECT_EQ(policy.releases, (std::vector<std::string>{"s1", "s2"}));
}

TEST(UnnamedWorkers, OneThatSaysItsNameLaterIsKnownFromThenOn) {
  PolicyHarness policy(two_zones());
  settle_unnamed(policy);
  policy.feed(policy_event::Gone{MemberId{1}});
  policy.feed(policy_event::Joined{MemberId{3}, "s1"});
  EXPECT_TRUE(policy.was_told("server_joined"));
  policy.wait(seconds(100));
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_EQ(policy.status().staying, 2u);
}

TEST(UnnamedWorkers, MayBeQuickerThanTheAnswer) {
  PolicyHarness policy(two_zones());
  const policy_effect::Request request = policy.requests[0];
  policy.now = policy.now + seconds(1);
  policy.feed(policy_event::Joined{MemberId{1}, ""});
  policy.feed(policy_event::Joined{MemberId{2}, ""});
  policy.grant(request);
  EXPECT_EQ(policy.status().staying, 2u);
  policy.wait(seconds(2000));
  EXPECT_TRUE(policy.releases.empty());
}

TEST(UnnamedWorkers, OnesWithAWrongNameAreLikeOnesWithoutAName) {
  PolicyHarness policy(two_zones());
  const std::vector<policy_effect::Request> wanted = policy.requests;
  for (const policy_effect::Request& request : wanted) {
    policy.grant(request);
  }
  policy.now = policy.now + seconds(1);
  policy.feed(policy_event::Joined{MemberId{1}, "host-1"});
  policy.feed(policy_event::Joined{MemberId{2}, "host-2"});
  EXPECT_EQ(policy.status().staying, 2u) << "each runs on one of the servers that wait";
  policy.wait(seconds(2000));
  EXPECT_TRUE(policy.releases.empty()) << "their servers are not surplus, and not late";
  EXPECT_TRUE(policy.drains.empty());
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_NE(policy.text_of("worker_unnamed").find("'host-1'"), std::string::npos);
  EXPECT_EQ(policy.status().staying, 2u);
  policy.feed(policy_event::Scaled{3});
  ASSERT_EQ(policy.requests.size(), 1u);
  policy.grant(std::vector(policy.requests)[0]);
  EXPECT_EQ(policy.status().staying, 3u) << "the new server was requested after they had joined";
  policy.feed(policy_event::Joined{MemberId{3}, "host-3"});
  EXPECT_EQ(policy.status().staying, 3u);
  policy.feed(listed({"s1", "s2", "s3"}));
  for (std::uint64_t member = 1; member <= 3; ++member) {
    policy.feed(policy_event::Gone{MemberId{member}});
  }
  policy.feed(listed({"s1", "s2", "s3"}));
  policy.wait(seconds(16));
  EXPECT_EQ(policy.releases, (std::vector<std::string>{"s1", "s2"})) << "with the last of them";
}

TEST(UnnamedWorkers, AServerThatCameAfterThemStillHasToBringItsWorker) {
  PolicyHarness policy(two_zones());
  settle_unnamed(policy);
  policy.now = policy.now + seconds(1);
  policy.feed(policy_event::Scaled{3});
  ASSERT_EQ(policy.requests.size(), 1u);
  policy.grant(std::vector(policy.requests)[0]);
  EXPECT_EQ(policy.status().staying, 3u);
  policy.wait(seconds(601));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s3"});
}

TEST(UnnamedWorkers, AServerThatMayBeTheirsIsNotReleasedForBeingLate) {
  PolicyHarness policy(two_zones());
  policy.grant(std::vector(policy.requests)[0]);
  policy.now = policy.now + seconds(1);
  policy.feed(policy_event::Joined{MemberId{1}, ""});
  policy.wait(seconds(601));
  EXPECT_TRUE(policy.releases.empty()) << "the first was presumed; it may as well be the second";
  EXPECT_EQ(policy.status().staying, 1u) << "but a worker is missing";
  ASSERT_EQ(policy.requests.size(), 1u);
}

TEST(UnnamedWorkers, AfterARestartTheyTakeThePlaceOfWhatIsAdopted) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  options.restarted = true;
  PolicyHarness policy(options);
  policy.feed(policy_event::Joined{MemberId{1}, ""});
  policy.feed(policy_event::Joined{MemberId{2}, ""});
  std::vector<ServerStatus> left = {PolicyHarness::server("x", {}), PolicyHarness::server("y", {})};
  for (int lists = 0; lists < 5; ++lists) {
    policy.feed(policy_event::Listed{left});
    policy.wait(seconds(20));
    EXPECT_TRUE(policy.requests.empty() && policy.releases.empty());
  }
  EXPECT_EQ(policy.status().staying, 2u);
}

TEST(UnnamedWorkers, TheEndOfALifetimeEndsTheirServerAllTheSame) {
  ReplacementOptions options = two_zones();
  options.lifetime_max = seconds(3600);
  PolicyHarness policy(options);
  settle_unnamed(policy);
  policy.wait(seconds(3481));
  EXPECT_EQ(policy.releases, (std::vector<std::string>{"s1", "s2"}));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
