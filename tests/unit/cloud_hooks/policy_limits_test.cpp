// What ReplacementPolicy may spend, and whose loss is a loss.

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_desk.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::Desk;
using test_support::offer;
using test_support::two_zones;

std::uint32_t asked_for(const Desk& desk) {
  std::uint32_t count = 0;
  for (const policy_effect::Request& request : desk.requests) {
    count += request.request.count;
  }
  return count;
}

/// Six minutes: until a new server has done something, the job stops with a checkpoint.
ReplacementOptions with_budget(double budget) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  options.max = 100;
  options.budget = budget;
  options.stop_margin = seconds(300);
  options.billed_at_least = seconds(60);
  return options;
}

TEST(PolicyBudget, PaysForWhatRunsBeforeItAsksForMore) {
  Desk desk(with_budget(1.0));
  desk.settle();  // two at 1.0
  desk.feed(policy_event::Scaled{100});
  // 1.0 less a minute of each, less 0.2 for what the two will cost in six minutes; and each more
  // costs 7/60 at least: 6.6 of them.
  EXPECT_EQ(asked_for(desk), 6u);
  EXPECT_TRUE(desk.was_told("budget"));
}

TEST(PolicyBudget, AsksForNothingThatWouldHaveToEndBeforeItHasDoneAnything) {
  EXPECT_EQ(asked_for(Desk(with_budget(7.0 / 60 * 2 + 0.001))), 2u);
  EXPECT_EQ(asked_for(Desk(with_budget(7.0 / 60 * 2 - 0.001))), 1u);
  EXPECT_EQ(asked_for(Desk(with_budget(7.0 / 60 - 0.001))), 0u);
}

TEST(PolicyBudget, BoundsTheLifetimeOfAServerThatNobodyMayReachAnyMore) {
  Desk desk(with_budget(2.0));
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.lifetime_max, seconds(2 * 3600));
  ReplacementOptions options = with_budget(2.0);
  options.lifetime_max = seconds(3600);
  EXPECT_EQ(Desk(options).requests.at(0).request.lifetime_max, seconds(3600));
  options = with_budget(200.0);
  options.lifetime_max = Duration(0);  // none
  EXPECT_EQ(Desk(options).requests.at(0).request.lifetime_max, seconds(200 * 3600));
}

TEST(PolicyBudget, TheJobStopsWhenTheRestIsWhatTheMarginCosts) {
  ReplacementOptions options = with_budget(2.0);  // two at 1.0 for an hour
  options.release_margin = seconds(60);
  Desk desk(options);
  desk.settle();
  desk.wait(seconds(3600 - 300 - 1));
  EXPECT_FALSE(desk.stopped);
  desk.wait(seconds(2));
  EXPECT_TRUE(desk.stopped);
  EXPECT_TRUE(desk.was_told("budget"));
  desk.wait(seconds(300 - 60 - 2));
  EXPECT_TRUE(desk.releases.empty());
  desk.wait(seconds(2));
  EXPECT_EQ(desk.releases, (std::vector<std::string>{"s1", "s2"}));
  EXPECT_FALSE(desk.stopped) << "once is enough";
}

TEST(PolicyBudget, AnHourlyOneIsUsedUpToTheLastServerThatFits) {
  ReplacementOptions options = two_zones();
  options.target = 8;
  options.budget_per_hour = 5.0;
  EXPECT_EQ(asked_for(Desk(options)), 5u);
  options.budget_per_hour = 4.99;
  EXPECT_EQ(asked_for(Desk(options)), 4u);
}

TEST(PolicyMembers, TheLossOfASecondWorkerOfAServerIsNotTheLossOfTheFirst) {
  Desk desk(two_zones());
  desk.settle();
  desk.feed(policy_event::Joined{MemberId{7}, "s2"});
  EXPECT_FALSE(desk.was_told("server_joined")) << "its worker is member 2";
  desk.feed(policy_event::Gone{MemberId{7}});
  EXPECT_FALSE(desk.was_told("server_lost"));
  desk.wait(seconds(120));
  EXPECT_TRUE(desk.releases.empty());
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_EQ(desk.status().staying, 2u);
  desk.feed(policy_event::Gone{MemberId{2}});
  EXPECT_TRUE(desk.was_told("server_lost"));
}

TEST(PolicyMembers, OneThatIsBackOnItsServerIsLostAgainUnderItsNewId) {
  Desk desk(two_zones());
  desk.settle();
  desk.feed(policy_event::Gone{MemberId{2}});
  ASSERT_TRUE(desk.was_told("server_lost"));
  desk.feed(policy_event::Joined{MemberId{9}, "s2"});
  EXPECT_TRUE(desk.was_told("server_joined"));
  desk.feed(policy_event::Gone{MemberId{2}});  // once more
  EXPECT_FALSE(desk.was_told("server_lost"));
  desk.wait(seconds(60));
  EXPECT_TRUE(desk.releases.empty()) << "it is not waited for any more";
  desk.feed(policy_event::Gone{MemberId{9}});
  EXPECT_TRUE(desk.was_told("server_lost"));
}

TEST(PolicyMembers, WhoJoinsFromAServerOnItsWayOutDoesNotKeepIt) {
  Desk desk(two_zones());
  desk.settle();
  desk.feed(policy_event::Leaving{MemberId{2}});
  desk.feed(policy_event::Joined{MemberId{9}, "s2"});
  EXPECT_FALSE(desk.was_told("server_joined"));
  desk.feed(policy_event::Gone{MemberId{2}});
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s2"});
}

TEST(PolicyMembers, AServerWhoseWorkerWasToLeaveIsReleasedAlsoIfItNeverSaysSo) {
  ReplacementOptions options = two_zones();
  options.leave_timeout = seconds(120);
  Desk desk(options);
  desk.settle();
  desk.feed(policy_event::Leaving{MemberId{2}});
  desk.wait(seconds(119));
  EXPECT_TRUE(desk.releases.empty());
  desk.feed(policy_event::Leaving{MemberId{2}});  // said twice
  desk.wait(seconds(1));
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s2"});
}

TEST(PolicyTarget, GivesUpTheDearestButKeepsTheFloorOfServersOnDemand) {
  ReplacementOptions options = two_zones();
  options.target = 4;
  options.on_demand_floor = 1;
  options.provider.count_max = 1;
  options.back_to_spot_after = Duration(0);
  options.offers = {{offer("a"), 1.0, 1.0}, {offer("a", Market::kOnDemand), 5.0, 1.0}};
  Desk desk(options);
  const std::vector<policy_effect::Request> wanted = desk.requests;
  ASSERT_EQ(wanted.size(), 4u);
  ASSERT_EQ(wanted[0].request.offer.market, Market::kOnDemand);
  desk.grant(wanted[0]);
  desk.grant(wanted[1]);
  desk.grant(wanted[2]);
  desk.refuse(wanted[3], test_support::error_of(ProviderErrorKind::kCapacity));
  const std::vector<policy_effect::Request> instead = desk.requests;
  ASSERT_EQ(instead.size(), 1u);
  ASSERT_EQ(instead[0].request.offer.market, Market::kOnDemand);
  desk.grant(instead[0]);
  for (std::uint64_t i = 1; i <= 4; ++i) {
    desk.feed(policy_event::Joined{MemberId{i}, "s" + std::to_string(i)});
  }
  desk.feed(policy_event::Scaled{2});
  EXPECT_EQ(desk.drains, (std::vector<MemberId>{MemberId{4}, MemberId{3}}))
      << "one on demand, then the younger one on spot";
}

TEST(PolicyTarget, StaysWithinItsBounds) {
  ReplacementOptions options = two_zones();
  options.min = 2;
  options.max = 3;
  options.target = 9;
  Desk desk(options);
  EXPECT_EQ(desk.status().target, 3u);
  desk.feed(policy_event::Scaled{1});
  EXPECT_EQ(desk.status().target, 2u);
  desk.feed(policy_event::Scaled{4});
  EXPECT_EQ(desk.status().target, 3u);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
