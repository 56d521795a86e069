// Workers that do not say on which server they run.

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_desk.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::Desk;
using test_support::two_zones;

/// Two servers are granted, and two workers join that do not say where they run.
void settle_unnamed(Desk& desk) {
  const std::vector<policy_effect::Request> wanted = desk.requests;
  for (const policy_effect::Request& request : wanted) {
    desk.grant(request);
  }
  desk.feed(policy_event::Joined{MemberId{1}, ""});
  desk.feed(policy_event::Joined{MemberId{2}, ""});
}

TEST(UnnamedWorkers, AreNotCountedBesideTheServersThatTheyRunOn) {
  Desk desk(two_zones());
  settle_unnamed(desk);
  EXPECT_EQ(desk.status().staying, 2u);
  desk.wait(seconds(2000));
  EXPECT_TRUE(desk.releases.empty()) << "their servers are not surplus, and not late";
  EXPECT_TRUE(desk.drains.empty());
  EXPECT_EQ(desk.status().staying, 2u);
  EXPECT_EQ(desk.status().billing, 2u);
}

TEST(UnnamedWorkers, ThePersonHearsOfItOnce) {
  Desk desk(two_zones());
  desk.grant(std::vector(desk.requests)[0]);
  desk.feed(policy_event::Joined{MemberId{1}, ""});
  EXPECT_TRUE(desk.was_told("worker_unnamed"));
  desk.feed(policy_event::Joined{MemberId{2}, ""});
  EXPECT_FALSE(desk.was_told("worker_unnamed"));
}

TEST(UnnamedWorkers, AreReplacedAtOnceWhenOneIsLost) {
  Desk desk(two_zones());
  settle_unnamed(desk);
  desk.feed(policy_event::Gone{MemberId{1}});
  desk.wait(milliseconds(20));
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.count, 1u);
  EXPECT_TRUE(desk.releases.empty()) << "nobody knows which server the other one runs on";
  desk.grant(std::vector(desk.requests)[0]);
  desk.feed(policy_event::Joined{MemberId{3}, ""});
  desk.wait(seconds(2000));
  EXPECT_TRUE(desk.releases.empty());
  EXPECT_EQ(desk.status().staying, 2u);
}

TEST(UnnamedWorkers, AreNotCountedBesideTheirServerWhenTheOneTheyWerePresumedOnEnds) {
  Desk desk(two_zones());
  std::vector<ServerStatus> servers;
  const std::vector<policy_effect::Request> wanted = desk.requests;
  for (const policy_effect::Request& request : wanted) {
    desk.grant(request);
    while (servers.size() < desk.servers_made) {
      servers.push_back(Desk::server("s" + std::to_string(servers.size() + 1), request.request));
    }
  }
  ASSERT_EQ(servers.size(), 2u);
  desk.feed(policy_event::Joined{MemberId{1}, ""});  // it runs on s2; s1 is taken for its own
  servers[0].state = ServerState::kGone;
  desk.feed(policy_event::Listed{servers});
  EXPECT_EQ(desk.status().staying, 1u) << "s2 and its worker are one";
}

TEST(UnnamedWorkers, LeaveTheirServersToBeReleasedWithTheLastOfThem) {
  Desk desk(two_zones());
  settle_unnamed(desk);
  desk.feed(policy_event::Gone{MemberId{1}});
  desk.feed(policy_event::Gone{MemberId{2}});
  desk.wait(seconds(14));
  EXPECT_TRUE(desk.releases.empty()) << "they may come back";
  desk.wait(seconds(2));
  EXPECT_EQ(desk.releases, (std::vector<std::string>{"s1", "s2"}));
}

TEST(UnnamedWorkers, OneThatSaysItsNameLaterIsKnownFromThenOn) {
  Desk desk(two_zones());
  settle_unnamed(desk);
  desk.feed(policy_event::Gone{MemberId{1}});
  desk.feed(policy_event::Joined{MemberId{3}, "s1"});
  EXPECT_TRUE(desk.was_told("server_joined"));
  desk.wait(seconds(100));
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_EQ(desk.status().staying, 2u);
}

TEST(UnnamedWorkers, MayBeQuickerThanTheAnswer) {
  Desk desk(two_zones());
  const policy_effect::Request request = desk.requests[0];
  desk.now = desk.now + seconds(1);
  desk.feed(policy_event::Joined{MemberId{1}, ""});
  desk.feed(policy_event::Joined{MemberId{2}, ""});
  desk.grant(request);
  EXPECT_EQ(desk.status().staying, 2u);
  desk.wait(seconds(2000));
  EXPECT_TRUE(desk.releases.empty());
}

TEST(UnnamedWorkers, AServerThatCameAfterThemStillHasToBringItsWorker) {
  Desk desk(two_zones());
  settle_unnamed(desk);
  desk.now = desk.now + seconds(1);
  desk.feed(policy_event::Scaled{3});
  ASSERT_EQ(desk.requests.size(), 1u);
  desk.grant(std::vector(desk.requests)[0]);
  EXPECT_EQ(desk.status().staying, 3u);
  desk.wait(seconds(601));
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s3"});
}

TEST(UnnamedWorkers, AServerThatMayBeTheirsIsNotReleasedForBeingLate) {
  Desk desk(two_zones());
  desk.grant(std::vector(desk.requests)[0]);
  desk.now = desk.now + seconds(1);
  desk.feed(policy_event::Joined{MemberId{1}, ""});
  desk.wait(seconds(601));
  EXPECT_TRUE(desk.releases.empty()) << "the first was presumed; it may as well be the second";
  EXPECT_EQ(desk.status().staying, 1u) << "but a worker is missing";
  ASSERT_EQ(desk.requests.size(), 1u);
}

TEST(UnnamedWorkers, AfterARestartTheyTakeThePlaceOfWhatIsAdopted) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  options.restarted = true;
  Desk desk(options);
  desk.feed(policy_event::Joined{MemberId{1}, ""});
  desk.feed(policy_event::Joined{MemberId{2}, ""});
  std::vector<ServerStatus> left = {Desk::server("x", {}), Desk::server("y", {})};
  for (int lists = 0; lists < 5; ++lists) {
    desk.feed(policy_event::Listed{left});
    desk.wait(seconds(20));
    EXPECT_TRUE(desk.requests.empty() && desk.releases.empty());
  }
  EXPECT_EQ(desk.status().staying, 2u);
}

TEST(UnnamedWorkers, TheEndOfALifetimeEndsTheirServerAllTheSame) {
  ReplacementOptions options = two_zones();
  options.lifetime_max = seconds(3600);
  Desk desk(options);
  settle_unnamed(desk);
  desk.wait(seconds(3481));
  EXPECT_EQ(desk.releases, (std::vector<std::string>{"s1", "s2"}));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
