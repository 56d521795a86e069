// The limits of what ReplacementPolicy spends and requests, and the workers whose loss is the loss
// of a server.

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::error_of;
using test_support::listed;
using test_support::offer;
using test_support::PolicyHarness;
using test_support::two_zones;

std::uint32_t asked_for(const PolicyHarness& policy) {
  std::uint32_t count = 0;
  for (const policy_effect::Request& request : policy.requests) {
    count += request.request.count;
  }
  return count;
}

/// A new server is useless if the job has to stop within six minutes: the margin in which the job
/// writes its checkpoint, and the least billed time.
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
  PolicyHarness policy(with_budget(1.0));
  policy.settle();  // two servers at 1.0
  policy.feed(policy_event::Scaled{100});
  // Both servers cost 2/60 for a minute so far, and 0.2 in the next six minutes. Each other server
  // costs at least 7/60, so the rest of the budget of 1.0 pays for 6.6 of them.
  EXPECT_EQ(asked_for(policy), 6u);
  EXPECT_TRUE(policy.was_told("budget"));
}

TEST(PolicyBudget, AsksForNothingThatWouldHaveToEndBeforeItHasDoneAnything) {
  EXPECT_EQ(asked_for(PolicyHarness(with_budget(7.0 / 60 * 2 + 0.001))), 2u);
  EXPECT_EQ(asked_for(PolicyHarness(with_budget(7.0 / 60 * 2 - 0.001))), 1u);
  EXPECT_EQ(asked_for(PolicyHarness(with_budget(7.0 / 60 - 0.001))), 0u);
}

TEST(PolicyBudget, BoundsTheLifetimeOfAServerThatNobodyMayReachAnyMore) {
  PolicyHarness policy(with_budget(2.0));
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.lifetime_max, seconds(2 * 3600));
  ReplacementOptions options = with_budget(2.0);
  options.lifetime_max = seconds(3600);
  EXPECT_EQ(PolicyHarness(options).requests.at(0).request.lifetime_max, seconds(3600));
  options = with_budget(200.0);
  options.lifetime_max = Duration(0);  // no limit
  EXPECT_EQ(PolicyHarness(options).requests.at(0).request.lifetime_max, seconds(200 * 3600));
}

TEST(PolicyBudget, TheJobStopsWhenTheRestIsWhatTheMarginCosts) {
  ReplacementOptions options = with_budget(2.0);  // an hour of two servers at 1.0
  options.release_margin = seconds(60);
  PolicyHarness policy(options);
  policy.settle();
  policy.wait(seconds(3600 - 300 - 1));
  EXPECT_FALSE(policy.stopped);
  policy.wait(seconds(2));
  EXPECT_TRUE(policy.stopped);
  EXPECT_TRUE(policy.was_told("budget"));
  policy.wait(seconds(300 - 60 - 2));
  EXPECT_TRUE(policy.releases.empty());
  policy.wait(seconds(2));
  EXPECT_EQ(policy.releases, (std::vector<std::string>{"s1", "s2"}));
  EXPECT_FALSE(policy.stopped) << "once is enough";
}

TEST(PolicyBudget, AnHourlyOneIsUsedUpToTheLastServerThatFits) {
  ReplacementOptions options = two_zones();
  options.target = 8;
  options.budget_per_hour = 5.0;
  EXPECT_EQ(asked_for(PolicyHarness(options)), 5u);
  options.budget_per_hour = 4.99;
  EXPECT_EQ(asked_for(PolicyHarness(options)), 4u);
}

TEST(PolicyBudget, AProviderPostponesTheReleaseOfAServerByMinutesOnly) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Scaled{1});
  ASSERT_EQ(policy.drains.size(), 1u);
  policy.feed(policy_event::Gone{policy.drains[0]});
  ASSERT_EQ(policy.releases.size(), 1u);
  const std::string server = policy.releases[0];
  ProviderError busy = error_of(ProviderErrorKind::kRate);
  busy.retry_after = seconds(3600);  // the server is paid for meanwhile
  policy.feed(policy_event::ReleaseAnswered{server, busy});
  policy.wait(ReplacementOptions{}.retry_after_max() - seconds(1));
  EXPECT_TRUE(policy.releases.empty());
  policy.wait(seconds(2));
  EXPECT_EQ(policy.releases, std::vector<std::string>{server});
}

TEST(PolicyBudget, AReleaseThatIsRefusedIsRepeatedAtGrowingIntervals) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Scaled{1});
  policy.feed(policy_event::Gone{policy.drains.at(0)});
  const std::string server = policy.releases.at(0);
  for (const Duration wait :
       {seconds(1), seconds(2), seconds(4), seconds(8), seconds(16), seconds(30), seconds(30)}) {
    policy.feed(policy_event::ReleaseAnswered{server, error_of(ProviderErrorKind::kAuth)});
    policy.wait(wait - milliseconds(100));
    EXPECT_TRUE(policy.releases.empty());
    policy.wait(milliseconds(200));
    EXPECT_EQ(policy.releases, std::vector<std::string>{server});
  }
}

TEST(PolicyLifetime, CountsFromTheStartOfAServerThatWasQueued) {
  ReplacementOptions options = two_zones();
  options.target = 1;
  options.lifetime_max = seconds(3600);
  options.leave_timeout = seconds(120);
  options.start_timeout = seconds(7200);
  PolicyHarness policy(options);
  const ServerRequest wanted = policy.requests.at(0).request;
  ServerStatus server = PolicyHarness::server("s1", wanted);
  server.state = ServerState::kStarting;
  server.uptime = Duration(0);
  policy.feed(policy_event::Answered{wanted.request_id, {{server}, std::nullopt}});
  for (int lists = 0; lists < 4; ++lists) {
    policy.wait(seconds(1000));
    EXPECT_TRUE(policy.releases.empty()) << "it has not begun";
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
  }
  server.state = ServerState::kRunning;
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
  policy.feed(policy_event::Joined{MemberId{1}, "s1"});
  policy.wait(seconds(3600 - 120 - 1));
  EXPECT_TRUE(policy.drains.empty());
  policy.wait(seconds(2));
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{1}});
}

TEST(PolicyQuota, AQuotaForFewerThanAreAskedForIsFoundByHalves) {
  ReplacementOptions options = two_zones();
  options.target = options.max = 6;
  options.offers = {{offer("a"), 1.0, 1.0}};
  PolicyHarness policy(options);
  constexpr std::uint32_t kQuota = 3;
  std::vector<policy_effect::Request> wanted = policy.requests;
  std::set<std::string> ids;
  for (int requests = 0; !wanted.empty() && requests < 20; ++requests) {
    const policy_effect::Request request = wanted.back();
    wanted.pop_back();
    EXPECT_TRUE(ids.insert(request.request.request_id).second) << "each with an id of its own";
    if (policy.servers_made + request.request.count > kQuota) {
      policy.refuse(request, error_of(ProviderErrorKind::kQuota));
    } else {
      policy.grant(request);
    }
    wanted.insert(wanted.end(), policy.requests.begin(), policy.requests.end());
  }
  EXPECT_TRUE(wanted.empty()) << "one alone was refused";
  EXPECT_EQ(policy.status().staying, kQuota);
  EXPECT_EQ(policy.status().coming, 0u);
}

TEST(PolicyQuota, AQuotaThatOthersUseUpIsAskedForAgain) {
  ReplacementOptions options = two_zones();
  options.target = 1;
  options.offers = {{offer("a"), 1.0, 1.0}};
  PolicyHarness policy(options);
  policy.refuse(policy.requests.at(0), error_of(ProviderErrorKind::kQuota));
  EXPECT_FALSE(policy.was_told("offer_stopped"));
  EXPECT_TRUE(policy.requests.empty());
  policy.wait(seconds(6));
  ASSERT_EQ(policy.requests.size(), 1u);
  policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kQuota));
  policy.wait(seconds(6));
  EXPECT_TRUE(policy.requests.empty()) << "after twice the time";
  policy.wait(seconds(6));
  EXPECT_EQ(policy.requests.size(), 1u);
}

TEST(PolicyQuota, IsNoReasonToGiveTheJobUp) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  options.provider.count_max = 1;
  PolicyHarness policy(options);
  const std::vector<policy_effect::Request> wanted = policy.requests;
  ASSERT_EQ(wanted.size(), 2u);
  policy.grant(wanted[0]);
  policy.refuse(wanted[1], error_of(ProviderErrorKind::kQuota));
  EXPECT_TRUE(policy.was_told("offer_stopped"));
  EXPECT_FALSE(policy.status().no_worker_comes);
}

TEST(PolicyStatus, KnowsWhenNoWorkerCanCome) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  options.provider.count_max = 1;
  options.start_timeout = options.join_timeout = seconds(100);
  PolicyHarness policy(options);
  const std::vector<policy_effect::Request> wanted = policy.requests;
  ASSERT_EQ(wanted.size(), 2u);
  policy.refuse(wanted[1], error_of(ProviderErrorKind::kConfig));
  EXPECT_FALSE(policy.status().no_worker_comes) << "one is requested";
  policy.grant(wanted[0]);
  EXPECT_FALSE(policy.status().no_worker_comes) << "one may be on it";
  policy.wait(seconds(100));
  EXPECT_TRUE(policy.status().no_worker_comes);
  policy.feed(policy_event::Scaled{2});
  EXPECT_FALSE(policy.status().no_worker_comes);
}

TEST(PolicyStatus, NoWorkerComesFromAProviderThatRefusesTheFirstList) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  PolicyHarness policy(options);
  policy.feed(policy_event::Listed{error_of(ProviderErrorKind::kRate)});
  EXPECT_TRUE(policy.was_told("list_failed"));
  EXPECT_FALSE(policy.status().no_worker_comes) << "it may answer later";
  policy.feed(policy_event::Listed{error_of(ProviderErrorKind::kConfig)});
  EXPECT_EQ(policy.text_of("no_server_starts"),
            "the provider does not list the servers of this job: config: because");
  EXPECT_TRUE(policy.status().no_worker_comes);
  policy.feed(policy_event::Listed{error_of(ProviderErrorKind::kConfig)});
  EXPECT_FALSE(policy.was_told("no_server_starts")) << "once is enough";
  policy.feed(policy_event::Ended{});
  EXPECT_TRUE(policy.settled()) << "nothing was requested";
}

TEST(PolicyStatus, AnOpenRequestWhoseServersAreKnownBringsNoMore) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  options.provider.count_max = 1;
  PolicyHarness policy(options);
  const std::vector<policy_effect::Request> wanted = policy.requests;
  ASSERT_EQ(wanted.size(), 2u);
  policy.refuse(wanted[0], error_of(ProviderErrorKind::kRate));
  ServerStatus server = PolicyHarness::server("s1", wanted[0].request);
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
  policy.refuse(wanted[1], error_of(ProviderErrorKind::kConfig));
  EXPECT_FALSE(policy.status().no_worker_comes) << "the server may bring one";
  server.state = ServerState::kGone;
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
  EXPECT_TRUE(policy.status().no_worker_comes);
}

/// One list shows the server, and a list an hour later does not. Requests for another one are
/// refused.
void miss_in_a_list(PolicyHarness& policy, const ServerStatus& server) {
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
  policy.wait(seconds(3500));
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{}});
  ASSERT_TRUE(policy.was_told("server_ended"));
  policy.wait(milliseconds(20));
  policy.refuse(policy.requests.at(0), error_of(ProviderErrorKind::kAuth));
  policy.refuse(policy.requests.at(0), error_of(ProviderErrorKind::kAuth));
  policy.wait(seconds(100));
}

TEST(PolicyBill, AServerThatOneListDoesNotShowIsBilledOnce) {
  ReplacementOptions options = two_zones();
  options.target = 1;
  PolicyHarness policy(options);
  policy.settle();
  ServerStatus server = PolicyHarness::server("s1", {});
  server.offer = offer("a");
  policy.wait(seconds(100));
  miss_in_a_list(policy, server);
  server.uptime = seconds(3700);
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
  EXPECT_TRUE(policy.was_told("server_adopted"));
  EXPECT_NEAR(policy.status().spent, 3700.0 / 3600, 1e-4);
}

TEST(PolicyBill, SoIsOneOfARequestThatIsStillOpen) {
  ReplacementOptions options = two_zones();
  options.target = 1;
  PolicyHarness policy(options);
  const ServerStatus server = PolicyHarness::server("s1", policy.requests.at(0).request);
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
  policy.feed(policy_event::Joined{MemberId{1}, "s1"});
  policy.wait(seconds(100));
  miss_in_a_list(policy, server);
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
  EXPECT_TRUE(policy.was_told("server_granted"));
  EXPECT_NEAR(policy.status().spent, 3700.0 / 3600, 1e-4);
}

TEST(PolicyBill, APriceThatChangesIsPaidFromThenOn) {
  ReplacementOptions options = two_zones();
  options.target = 1;
  PolicyHarness policy(options);
  policy.settle();
  ServerStatus server = PolicyHarness::server("s1", {});
  const auto listed_at = [&](double price) {
    server.price_per_hour = price;
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
    return policy.status().spent;
  };
  policy.wait(seconds(3600));
  EXPECT_DOUBLE_EQ(listed_at(2), 2) << "what was charged before was an estimate";
  policy.wait(seconds(3600));
  EXPECT_DOUBLE_EQ(listed_at(10), 4);
  policy.wait(seconds(3600));
  EXPECT_DOUBLE_EQ(listed_at(1), 14);
}

TEST(PolicyMembers, TheLossOfASecondWorkerOfAServerIsNotTheLossOfTheFirst) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Joined{MemberId{7}, "s2"});
  EXPECT_FALSE(policy.was_told("server_joined")) << "its worker is member 2";
  policy.feed(policy_event::Gone{MemberId{7}});
  EXPECT_FALSE(policy.was_told("server_lost"));
  policy.wait(seconds(120));
  EXPECT_TRUE(policy.releases.empty());
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_EQ(policy.status().staying, 2u);
  policy.feed(policy_event::Gone{MemberId{2}});
  EXPECT_TRUE(policy.was_told("server_lost"));
}

TEST(PolicyMembers, OneThatIsBackOnItsServerIsLostAgainUnderItsNewId) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Gone{MemberId{2}});
  ASSERT_TRUE(policy.was_told("server_lost"));
  policy.feed(policy_event::Joined{MemberId{9}, "s2"});
  EXPECT_TRUE(policy.was_told("server_joined"));
  policy.feed(policy_event::Gone{MemberId{2}});  // the same loss again
  EXPECT_FALSE(policy.was_told("server_lost"));
  policy.wait(seconds(60));
  EXPECT_TRUE(policy.releases.empty()) << "it is not waited for any more";
  policy.feed(policy_event::Gone{MemberId{9}});
  EXPECT_TRUE(policy.was_told("server_lost"));
}

/// A coordinator that is cut off gets no message of a worker and no answer of the provider.
TEST(PolicyMembers, NoServerIsReleasedForSilenceUntilTheProviderHasAnswered) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Gone{MemberId{1}});
  policy.feed(policy_event::Gone{MemberId{2}});
  policy.wait(seconds(100));
  EXPECT_TRUE(policy.releases.empty());
  policy.feed(policy_event::Listed{error_of(ProviderErrorKind::kRate)});
  policy.wait(seconds(20));
  EXPECT_TRUE(policy.releases.empty());
  policy.feed(listed({"s1", "s2"}));
  policy.feed(policy_event::Joined{MemberId{3}, "s1"});
  EXPECT_TRUE(policy.was_told("server_joined"));
  policy.wait(seconds(14));
  EXPECT_TRUE(policy.releases.empty()) << "its worker may need a while to come back";
  policy.wait(seconds(1));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s2"});
}

/// The provider for hosts, for example, still lists the servers of a host that does not answer.
TEST(PolicyMembers, WhatAProviderOnlyRemembersIsNoAnswer) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Gone{MemberId{2}});
  std::vector<ServerStatus> servers = {PolicyHarness::server("s1", {}),
                                       PolicyHarness::server("s2", {})};
  servers[1].is_remembered = true;
  policy.feed(policy_event::Listed{servers});
  policy.wait(seconds(100));
  EXPECT_TRUE(policy.releases.empty());
  policy.feed(listed({"s1", "s2"}));
  policy.wait(seconds(14));
  EXPECT_TRUE(policy.releases.empty());
  policy.wait(seconds(1));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s2"});
}

TEST(PolicyMembers, AListThatWasAskedForBeforeALossIsFollowedByAnother) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.wait(seconds(16));  // the policy asks for a list
  policy.feed(policy_event::Gone{MemberId{2}});
  policy.feed(listed({"s1", "s2"}));
  policy.wait(seconds(2));
  policy.feed(listed({"s1", "s2"}));
  policy.wait(seconds(13));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s2"});
}

TEST(PolicyMembers, WhoJoinsFromAServerOnItsWayOutDoesNotKeepIt) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Leaving{MemberId{2}});
  policy.feed(policy_event::Joined{MemberId{9}, "s2"});
  EXPECT_FALSE(policy.was_told("server_joined"));
  policy.feed(policy_event::Gone{MemberId{2}});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{9}}) << "its server ends soon";
  EXPECT_TRUE(policy.releases.empty());
  policy.feed(policy_event::Gone{MemberId{9}});
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s2"});
}

TEST(PolicyMembers, AServerWhoseWorkerWasToLeaveIsReleasedAlsoIfItNeverSaysSo) {
  ReplacementOptions options = two_zones();
  options.leave_timeout = seconds(120);
  PolicyHarness policy(options);
  policy.settle();
  policy.feed(policy_event::Leaving{MemberId{2}});
  policy.wait(seconds(119));
  EXPECT_TRUE(policy.releases.empty());
  policy.feed(policy_event::Leaving{MemberId{2}});  // reported again
  policy.wait(seconds(1));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s2"});
}

TEST(PolicyTarget, GivesUpTheDearestButKeepsTheFloorOfServersOnDemand) {
  ReplacementOptions options = two_zones();
  options.target = 4;
  options.on_demand_floor = 1;
  options.provider.count_max = 1;
  options.back_to_spot_after = Duration(0);
  options.offers = {{offer("a"), 1.0, 1.0}, {offer("a", Market::kOnDemand), 5.0, 1.0}};
  PolicyHarness policy(options);
  const std::vector<policy_effect::Request> wanted = policy.requests;
  ASSERT_EQ(wanted.size(), 4u);
  ASSERT_EQ(wanted[0].request.offer.market, Market::kOnDemand);
  policy.grant(wanted[0]);
  policy.grant(wanted[1]);
  policy.grant(wanted[2]);
  policy.refuse(wanted[3], error_of(ProviderErrorKind::kCapacity));
  const std::vector<policy_effect::Request> instead = policy.requests;
  ASSERT_EQ(instead.size(), 1u);
  ASSERT_EQ(instead[0].request.offer.market, Market::kOnDemand);
  policy.grant(instead[0]);
  for (std::uint64_t i = 1; i <= 4; ++i) {
    policy.feed(policy_event::Joined{MemberId{i}, "s" + std::to_string(i)});
  }
  policy.feed(policy_event::Scaled{2});
  EXPECT_EQ(policy.drains, (std::vector<MemberId>{MemberId{4}, MemberId{3}}))
      << "one on demand, then the younger one on spot";
}

TEST(PolicyTarget, StaysWithinItsBounds) {
  ReplacementOptions options = two_zones();
  options.max = 3;
  options.target = 9;
  PolicyHarness policy(options);
  EXPECT_EQ(policy.status().target, 3u);
  policy.feed(policy_event::Scaled{0});
  EXPECT_EQ(policy.status().target, 1u);
  policy.feed(policy_event::Scaled{4});
  EXPECT_EQ(policy.status().target, 3u);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
