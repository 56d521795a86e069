// A server on demand gives way to a spot server, when there is one again.

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_desk.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::Desk;
using test_support::error_of;
using test_support::offer;
using test_support::two_zones;

constexpr Duration kCalm = seconds(900);

/// Two workers on spot at 1, or on demand at 3.
ReplacementOptions spot_or_on_demand() {
  ReplacementOptions options = two_zones();
  options.max = 2;
  options.offers = {{offer("a"), 1.0, 1.0}, {offer("a", Market::kOnDemand), 3.0, 1.0}};
  options.provider.count_max = 1;
  options.back_to_spot_after = kCalm;
  return options;
}

/// Worker 1 is on spot, worker 2 on demand, because the second request for spot was refused.
Desk mixed(const ReplacementOptions& options) {
  Desk desk(options);
  const std::vector<policy_effect::Request> wanted = desk.requests;
  EXPECT_EQ(wanted.size(), 2u);
  desk.refuse(wanted.at(1), error_of(ProviderErrorKind::kCapacity));
  const std::vector<policy_effect::Request> instead = desk.requests;
  EXPECT_EQ(instead.size(), 1u);
  EXPECT_EQ(instead.at(0).request.offer.market, Market::kOnDemand);
  desk.grant(wanted.at(0));
  desk.grant(instead.at(0));
  desk.feed(policy_event::Joined{MemberId{1}, "s1"});
  desk.feed(policy_event::Joined{MemberId{2}, "s2"});
  return desk;
}

/// The heir is asked for and granted as s3.
Desk exchanging(const ReplacementOptions& options) {
  Desk desk = mixed(options);
  desk.wait(kCalm);
  EXPECT_EQ(desk.requests.size(), 1u);
  desk.grant(desk.requests.at(0));
  return desk;
}

TEST(BackToSpot, AfterACalmTheDearServerIsExchangedWithoutLosingAWorker) {
  Desk desk = mixed(spot_or_on_demand());
  desk.wait(kCalm - seconds(1));
  EXPECT_TRUE(desk.requests.empty());
  desk.wait(seconds(1));
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.offer, offer("a"));
  EXPECT_TRUE(desk.was_told("back_to_spot"));
  EXPECT_LE(desk.status().staying + desk.status().coming, 2u);
  desk.grant(desk.requests[0]);
  desk.feed(policy_event::Joined{MemberId{3}, "s3"});
  EXPECT_TRUE(desk.drains.empty());  // it may have to load for a while
  desk.feed(policy_event::Measured{MemberId{3}, 1.0});
  EXPECT_EQ(desk.drains, std::vector<MemberId>{MemberId{2}});
  desk.feed(policy_event::Gone{MemberId{2}});
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s2"});
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_EQ(desk.status().staying, 2u);
}

TEST(BackToSpot, AWorkerWhoseSpeedNobodyHearsOfIsBelievedAfterAWhile) {
  ReplacementOptions options = spot_or_on_demand();
  options.join_timeout = seconds(300);
  Desk desk = exchanging(options);
  desk.feed(policy_event::Joined{MemberId{3}, "s3"});
  desk.wait(seconds(299));
  EXPECT_TRUE(desk.drains.empty());
  desk.wait(seconds(1));
  EXPECT_EQ(desk.drains, std::vector<MemberId>{MemberId{2}});
}

TEST(BackToSpot, ARefusalLeavesAllAsItIsAndTheNextTryComesLaterEachTime) {
  Desk desk = mixed(spot_or_on_demand());
  desk.wait(kCalm);
  for (int doubled = 2; doubled <= 8; doubled *= 2) {
    ASSERT_EQ(desk.requests.size(), 1u);
    desk.refuse(desk.requests[0], error_of(ProviderErrorKind::kCapacity));
    EXPECT_TRUE(desk.requests.empty() && desk.drains.empty());
    EXPECT_EQ(desk.status().staying, 2u);
    desk.wait(doubled * kCalm - seconds(1));
    EXPECT_TRUE(desk.requests.empty());
    desk.wait(seconds(1));
  }
}

TEST(BackToSpot, WhoIsIrreplaceableStays) {
  Desk desk = mixed(spot_or_on_demand());
  desk.feed(policy_event::Irreplaceable{MemberId{2}});
  desk.wait(10 * kCalm);
  EXPECT_TRUE(desk.requests.empty());
}

TEST(BackToSpot, TheFloorOfServersOnDemandStays) {
  ReplacementOptions options = spot_or_on_demand();
  options.on_demand_floor = 1;
  Desk desk(options);
  desk.settle();
  desk.wait(10 * kCalm);
  EXPECT_TRUE(desk.requests.empty());
}

TEST(BackToSpot, NeverMeansNever) {
  ReplacementOptions options = spot_or_on_demand();
  options.back_to_spot_after = Duration(0);
  Desk desk = mixed(options);
  desk.wait(10 * kCalm);
  EXPECT_TRUE(desk.requests.empty());
}

TEST(BackToSpot, WhatSavesLittleIsNotWorthIt) {
  ReplacementOptions options = spot_or_on_demand();
  options.offers[1].price_per_hour = 1.2;
  Desk desk = mixed(options);
  desk.wait(10 * kCalm);
  EXPECT_TRUE(desk.requests.empty());
}

TEST(BackToSpot, BothAtOnceMustBeAffordable) {
  ReplacementOptions options = spot_or_on_demand();
  options.budget_per_hour = 4.5;
  Desk desk = mixed(options);
  desk.wait(10 * kCalm);
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_TRUE(desk.drains.empty());
}

TEST(BackToSpot, ALossMeanwhileIsReplacedByTheHeir) {
  Desk desk = exchanging(spot_or_on_demand());
  desk.feed(policy_event::Leaving{MemberId{2}});
  desk.feed(policy_event::Gone{MemberId{2}});
  desk.feed(policy_event::Joined{MemberId{3}, "s3"});
  desk.feed(policy_event::Measured{MemberId{3}, 1.0});
  desk.wait(seconds(120));
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_TRUE(desk.drains.empty());
  EXPECT_EQ(desk.status().staying, 2u);
}

TEST(BackToSpot, AnHeirThatIsLostBeforeItWorksChangesNothing) {
  Desk desk = exchanging(spot_or_on_demand());
  ServerStatus gone = Desk::server("s3", {});
  gone.state = ServerState::kGone;
  desk.feed(policy_event::Listed{
      std::vector<ServerStatus>{Desk::server("s1", {}), Desk::server("s2", {}), gone}});
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_TRUE(desk.drains.empty());
  EXPECT_EQ(desk.status().staying, 2u);
}

TEST(BackToSpot, AnHeirThatIsToLeaveBeforeItWorksChangesNothing) {
  Desk desk = exchanging(spot_or_on_demand());
  desk.feed(policy_event::Joined{MemberId{3}, "s3"});
  desk.feed(policy_event::Leaving{MemberId{3}});
  desk.feed(policy_event::Measured{MemberId{3}, 1.0});
  EXPECT_TRUE(desk.drains.empty());
  desk.wait(kCalm - seconds(1));
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_EQ(desk.status().staying, 2u);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
