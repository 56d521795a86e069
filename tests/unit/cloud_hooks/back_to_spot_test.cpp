// An on-demand server is replaced by a spot server when one is available again.

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::error_of;
using test_support::offer;
using test_support::PolicyHarness;
using test_support::two_zones;

constexpr Duration kCalm = seconds(900);

/// Two workers, on spot servers at 1 per hour or on-demand servers at 3.
ReplacementOptions spot_or_on_demand() {
  ReplacementOptions options = two_zones();
  options.max = 2;
  options.offers = {{offer("a"), 1.0, 1.0}, {offer("a", Market::kOnDemand), 3.0, 1.0}};
  options.provider.count_max = 1;
  options.back_to_spot_after = kCalm;
  return options;
}

/// Worker 1 is on a spot server. Worker 2 is on an on-demand server, because the second request for
/// a spot server was refused.
PolicyHarness mixed(const ReplacementOptions& options) {
  PolicyHarness policy(options);
  const std::vector<policy_effect::Request> wanted = policy.requests;
  EXPECT_EQ(wanted.size(), 2u);
  policy.refuse(wanted.at(1), error_of(ProviderErrorKind::kCapacity));
  const std::vector<policy_effect::Request> instead = policy.requests;
  EXPECT_EQ(instead.size(), 1u);
  EXPECT_EQ(instead.at(0).request.offer.market, Market::kOnDemand);
  policy.grant(wanted.at(0));
  policy.grant(instead.at(0));
  policy.feed(policy_event::Joined{MemberId{1}, "s1"});
  policy.feed(policy_event::Joined{MemberId{2}, "s2"});
  return policy;
}

/// The same, after the successor of s2 was requested and granted as s3.
PolicyHarness exchanging(const ReplacementOptions& options) {
  PolicyHarness policy = mixed(options);
  policy.wait(kCalm);
  EXPECT_EQ(policy.requests.size(), 1u);
  policy.grant(policy.requests.at(0));
  return policy;
}

TEST(BackToSpot, AfterACalmTheDearServerIsExchangedWithoutLosingAWorker) {
  PolicyHarness policy = mixed(spot_or_on_demand());
  policy.wait(kCalm - seconds(1));
  EXPECT_TRUE(policy.requests.empty());
  policy.wait(seconds(1));
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.offer, offer("a"));
  EXPECT_TRUE(policy.was_told("back_to_spot"));
  EXPECT_LE(policy.status().staying + policy.status().coming, 2u);
  policy.grant(policy.requests[0]);
  policy.feed(policy_event::Joined{MemberId{3}, "s3"});
  EXPECT_TRUE(policy.drains.empty());  // its worker may still be loading
  policy.feed(policy_event::Measured{MemberId{3}, 1.0});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{2}});
  policy.feed(policy_event::Gone{MemberId{2}});
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s2"});
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_EQ(policy.status().staying, 2u);
}

TEST(BackToSpot, AWorkerWhoseSpeedNobodyHearsOfIsBelievedAfterAWhile) {
  ReplacementOptions options = spot_or_on_demand();
  options.join_timeout = seconds(300);
  PolicyHarness policy = exchanging(options);
  policy.feed(policy_event::Joined{MemberId{3}, "s3"});
  policy.wait(seconds(299));
  EXPECT_TRUE(policy.drains.empty());
  policy.wait(seconds(1));
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{2}});
}

TEST(BackToSpot, ARefusalLeavesAllAsItIsAndTheNextTryComesLaterEachTime) {
  PolicyHarness policy = mixed(spot_or_on_demand());
  policy.wait(kCalm);
  for (int doubled = 2; doubled <= 8; doubled *= 2) {
    ASSERT_EQ(policy.requests.size(), 1u);
    policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kCapacity));
    EXPECT_TRUE(policy.requests.empty() && policy.drains.empty());
    EXPECT_EQ(policy.status().staying, 2u);
    policy.wait(doubled * kCalm - seconds(1));
    EXPECT_TRUE(policy.requests.empty());
    policy.wait(seconds(1));
  }
}

TEST(BackToSpot, WhoIsIrreplaceableStays) {
  PolicyHarness policy = mixed(spot_or_on_demand());
  policy.feed(policy_event::Irreplaceable{MemberId{2}});
  policy.wait(10 * kCalm);
  EXPECT_TRUE(policy.requests.empty());
}

TEST(BackToSpot, TheFloorOfServersOnDemandStays) {
  ReplacementOptions options = spot_or_on_demand();
  options.on_demand_floor = 1;
  PolicyHarness policy(options);
  policy.settle();
  policy.wait(10 * kCalm);
  EXPECT_TRUE(policy.requests.empty());
}

TEST(BackToSpot, NeverMeansNever) {
  ReplacementOptions options = spot_or_on_demand();
  options.back_to_spot_after = Duration(0);
  PolicyHarness policy = mixed(options);
  policy.wait(10 * kCalm);
  EXPECT_TRUE(policy.requests.empty());
}

TEST(BackToSpot, WhatSavesLittleIsNotWorthIt) {
  ReplacementOptions options = spot_or_on_demand();
  options.offers[1].price_per_hour = 1.2;
  PolicyHarness policy = mixed(options);
  policy.wait(10 * kCalm);
  EXPECT_TRUE(policy.requests.empty());
}

TEST(BackToSpot, BothAtOnceMustBeAffordable) {
  ReplacementOptions options = spot_or_on_demand();
  options.budget_per_hour = 4.5;
  PolicyHarness policy = mixed(options);
  policy.wait(10 * kCalm);
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_TRUE(policy.drains.empty());
}

TEST(BackToSpot, ALossMeanwhileIsReplacedByTheHeir) {
  PolicyHarness policy = exchanging(spot_or_on_demand());
  policy.feed(policy_event::Leaving{MemberId{2}});
  policy.feed(policy_event::Gone{MemberId{2}});
  policy.feed(policy_event::Joined{MemberId{3}, "s3"});
  policy.feed(policy_event::Measured{MemberId{3}, 1.0});
  policy.wait(seconds(120));
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_TRUE(policy.drains.empty());
  EXPECT_EQ(policy.status().staying, 2u);
}

TEST(BackToSpot, AnHeirThatIsLostBeforeItWorksChangesNothing) {
  PolicyHarness policy = exchanging(spot_or_on_demand());
  ServerStatus gone = PolicyHarness::server("s3", {});
  gone.state = ServerState::kGone;
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{
      PolicyHarness::server("s1", {}), PolicyHarness::server("s2", {}), gone}});
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_TRUE(policy.drains.empty());
  EXPECT_EQ(policy.status().staying, 2u);
}

TEST(BackToSpot, AnHeirThatIsToLeaveBeforeItWorksChangesNothing) {
  PolicyHarness policy = exchanging(spot_or_on_demand());
  policy.feed(policy_event::Joined{MemberId{3}, "s3"});
  policy.feed(policy_event::Leaving{MemberId{3}});
  policy.feed(policy_event::Measured{MemberId{3}, 1.0});
  EXPECT_TRUE(policy.drains.empty());
  policy.wait(kCalm - seconds(1));
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_EQ(policy.status().staying, 2u);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
