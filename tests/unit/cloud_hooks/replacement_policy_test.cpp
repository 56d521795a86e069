#include "cloud_hooks/core/replacement_policy.hpp"

#include <gtest/gtest.h>

#include "cloud_hooks/core/request_id.hpp"
#include "tests/unit/cloud_hooks/policy_desk.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::Desk;
using test_support::error_of;
using test_support::offer;
using test_support::two_zones;

TEST(ReplacementPolicy, AsksForTheTargetWhereSpeedCostsLeast) {
  Desk desk(two_zones());
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.count, 2u);
  EXPECT_EQ(desk.requests[0].request.offer, offer("a"));
  EXPECT_TRUE(is_request_id(desk.requests[0].request.request_id));
  EXPECT_EQ(desk.requests[0].request.lifetime_max, seconds(86400));
}

TEST(ReplacementPolicy, AMeasuredSpeedDecidesNotOnlyThePrice) {
  ReplacementOptions options = two_zones();
  options.offers[1].offer.machine_type = "faster";
  options.offers[0].speed = options.offers[1].speed = 1;
  Desk desk(options);
  desk.settle();
  desk.feed(policy_event::Measured{MemberId{1}, 10});
  desk.feed(policy_event::Scaled{3});  // the other type is still taken for as fast: it costs more
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.offer.machine_type, "gpu");
  desk.refuse(desk.requests[0], error_of(ProviderErrorKind::kCapacity));
  desk.settle();
  desk.feed(policy_event::Measured{MemberId{3}, 40});
  desk.wait(seconds(600));
  desk.feed(policy_event::Scaled{4});
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.offer.machine_type, "faster");
}

TEST(ReplacementPolicy, AStockOutGoesToTheNextOfferAtOnceAndBackLater) {
  Desk desk(two_zones());
  desk.refuse(desk.requests[0], error_of(ProviderErrorKind::kCapacity));
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.offer, offer("b"));
  desk.refuse(desk.requests[0], error_of(ProviderErrorKind::kCapacity));
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_TRUE(desk.was_told("offers_exhausted"));
  desk.wait(seconds(6));
  ASSERT_FALSE(desk.requests.empty());
  EXPECT_EQ(desk.requests[0].request.offer, offer("a"));
}

TEST(ReplacementPolicy, APartialGrantIsKeptAndTheRestGoesElsewhere) {
  Desk desk(two_zones());
  RequestOutcome outcome;
  outcome.servers.push_back(Desk::server("one", desk.requests[0].request));
  outcome.error = error_of(ProviderErrorKind::kCapacity);
  desk.feed(policy_event::Answered{desk.requests[0].request.request_id, outcome});
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.count, 1u);
  EXPECT_EQ(desk.requests[0].request.offer, offer("b"));
}

TEST(ReplacementPolicy, ZonesThatTheProviderNamesComeFirst) {
  ReplacementOptions options = two_zones();
  options.offers.push_back({offer("c"), 3.0, 1.0});
  Desk desk(options);
  ProviderError error = error_of(ProviderErrorKind::kCapacity);
  error.zones_available = {"c"};
  desk.refuse(desk.requests[0], error);
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.offer, offer("c"));
}

TEST(ReplacementPolicy, AQuotaStopsAskingUntilAServerOfThatKindHasEnded) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  Desk desk(options);
  desk.settle();
  desk.feed(policy_event::Scaled{3});
  desk.refuse(desk.requests.at(0), error_of(ProviderErrorKind::kQuota));
  EXPECT_TRUE(desk.was_told("offer_stopped"));
  desk.wait(std::chrono::hours(2));
  EXPECT_TRUE(desk.requests.empty());
  ServerStatus gone = Desk::server("s1", {});
  gone.state = ServerState::kGone;
  ServerStatus other = Desk::server("s2", {});
  desk.feed(policy_event::Listed{std::vector<ServerStatus>{gone, other}});
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.count, 2u);
}

TEST(ReplacementPolicy, WhatAPersonMustMendIsNotAskedForAgainUntilScale) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  for (const ProviderErrorKind kind : {ProviderErrorKind::kAuth, ProviderErrorKind::kConfig}) {
    Desk desk(options);
    desk.refuse(desk.requests[0], error_of(kind));
    EXPECT_TRUE(desk.was_told("offer_stopped"));
    desk.wait(std::chrono::hours(2));
    EXPECT_TRUE(desk.requests.empty());
    desk.feed(policy_event::Scaled{2});
    EXPECT_EQ(desk.requests.size(), 1u);
  }
}

TEST(ReplacementPolicy, ALostAnswerIsRepeatedAsItWas) {
  Desk desk(two_zones());
  const ServerRequest first = desk.requests[0].request;
  desk.refuse(desk.requests[0], error_of(ProviderErrorKind::kRate));
  EXPECT_TRUE(desk.requests.empty());
  desk.wait(seconds(2));
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_TRUE(desk.requests[0].is_repeat);
  EXPECT_EQ(desk.requests[0].request, first);
  EXPECT_EQ(desk.status().coming, 2u);
}

TEST(ReplacementPolicy, ARequestThatIsNeverAnsweredIsSettledByTheList) {
  ReplacementOptions options = two_zones();
  options.repeats_max = 1;
  Desk desk(options);
  const ServerRequest first = desk.requests[0].request;
  desk.refuse(desk.requests[0], error_of(ProviderErrorKind::kRate));
  desk.wait(seconds(2));
  desk.refuse(desk.requests.at(0), error_of(ProviderErrorKind::kRate));
  ASSERT_EQ(desk.requests.size(), 1u);  // the job is not kept waiting: another zone
  EXPECT_EQ(desk.requests[0].request.offer, offer("b"));
  desk.settle();
  desk.feed(policy_event::Listed{std::vector<ServerStatus>{
      Desk::server("s1", {}), Desk::server("s2", {}), Desk::server("late", first)}});
  EXPECT_TRUE(desk.was_told("server_granted"));
  desk.wait(seconds(61));
  EXPECT_EQ(desk.releases, std::vector<std::string>{"late"});
}

TEST(ReplacementPolicy, WhatARequestMayHaveMadeUnseenIsBilledForTheLeastTime) {
  Desk desk(two_zones());
  const policy_effect::Request request = desk.requests[0];  // two at 1.0
  desk.feed(policy_event::Ended{});
  desk.refuse(request, error_of(ProviderErrorKind::kRate));
  EXPECT_DOUBLE_EQ(desk.status().per_hour, 2.0) << "until lists show what became of it";
  bool given_up = false;
  for (int lists = 0; lists < 5; ++lists) {
    desk.feed(policy_event::Listed{std::vector<ServerStatus>{}});
    given_up = given_up || desk.was_told("request_given_up");
    desk.wait(seconds(15));
  }
  EXPECT_TRUE(given_up);
  EXPECT_DOUBLE_EQ(desk.status().per_hour, 0);
  EXPECT_DOUBLE_EQ(desk.status().spent, 2 * 1.0 / 60);
}

TEST(ReplacementPolicy, IfListsFailedForLongItIsBilledForAllThatTime) {
  Desk desk(two_zones());
  const policy_effect::Request request = desk.requests[0];  // two at 1.0
  desk.feed(policy_event::Ended{});
  desk.refuse(request, error_of(ProviderErrorKind::kRate));
  for (int lists = 0; lists < 40; ++lists) {
    desk.feed(policy_event::Listed{error_of(ProviderErrorKind::kRate)});
    desk.wait(seconds(15));
  }
  desk.feed(policy_event::Listed{std::vector<ServerStatus>{}});
  EXPECT_TRUE(desk.was_told("request_given_up"));
  EXPECT_DOUBLE_EQ(desk.status().per_hour, 0);
  EXPECT_NEAR(desk.status().spent, 2 * 1.0 * 600 / 3600, 2 * 1.0 * 15 / 3600);
}

TEST(ReplacementPolicy, AServerThatIsFirstSeenWhenItHasEndedIsBilled) {
  Desk desk(two_zones());
  const policy_effect::Request request = desk.requests[0];
  RequestOutcome outcome;
  outcome.servers.push_back(Desk::server("short", request.request));
  outcome.servers[0].state = ServerState::kGone;
  outcome.error = error_of(ProviderErrorKind::kCapacity);
  desk.now = desk.now + seconds(5);
  desk.feed(policy_event::Answered{request.request.request_id, outcome});
  EXPECT_TRUE(desk.was_told("server_refused"));
  const double asked_now = 2 * 2.0 / 60;  // two at 2.0 in the other zone, a minute each at least
  EXPECT_DOUBLE_EQ(desk.status().spent, 1.0 / 60 + asked_now);
}

TEST(ReplacementPolicy, AListThatShowsAnEndedServerOfALostAnswerBillsItOnce) {
  ReplacementOptions options = two_zones();
  options.repeats_max = 1;
  Desk desk(options);
  const ServerRequest first = desk.requests[0].request;
  desk.refuse(desk.requests[0], error_of(ProviderErrorKind::kRate));
  desk.wait(seconds(2));
  desk.refuse(desk.requests.at(0), error_of(ProviderErrorKind::kRate));
  EXPECT_DOUBLE_EQ(desk.status().per_hour, 6.0) << "two that may exist, and two asked for instead";
  ServerStatus ended = Desk::server("ended", first);
  ended.state = ServerState::kGone;
  for (int lists = 0; lists < 2; ++lists) {
    desk.feed(policy_event::Listed{std::vector<ServerStatus>{ended}});
    EXPECT_DOUBLE_EQ(desk.status().per_hour, 5.0);
    EXPECT_DOUBLE_EQ(desk.status().spent, 6.0 / 60) << "a minute at least";
  }
}

TEST(ReplacementPolicy, ManyLossesAtOnceAreOneRequestElsewhere) {
  ReplacementOptions options = two_zones();
  options.target = 4;
  Desk desk(options);
  desk.settle();
  for (std::uint64_t member = 1; member <= 3; ++member) {
    desk.feed(policy_event::Gone{MemberId{member}});
    EXPECT_TRUE(desk.requests.empty());
    desk.now = desk.now + milliseconds(2);
  }
  desk.wait(milliseconds(20));
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.count, 3u);
  EXPECT_EQ(desk.requests[0].request.offer, offer("b"));
  EXPECT_LE(desk.now - desk.requests[0].loss.value(), milliseconds(30));
}

TEST(ReplacementPolicy, ANoticeBringsAReplacementBeforeTheWorkerIsGone) {
  Desk desk(two_zones());
  desk.settle();
  desk.feed(policy_event::Leaving{MemberId{1}});
  desk.wait(milliseconds(20));
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.count, 1u);
  desk.feed(policy_event::Gone{MemberId{1}});  // it bills until it is released
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s1"});
}

TEST(ReplacementPolicy, AWorkerThatComesBackKeepsItsServerAndTheSurplusGoes) {
  Desk desk(two_zones());
  desk.settle();
  desk.feed(policy_event::Gone{MemberId{2}});
  desk.wait(milliseconds(20));
  desk.grant(desk.requests.at(0));
  desk.feed(policy_event::Joined{MemberId{9}, "s2"});
  EXPECT_EQ(desk.status().staying, 3u);
  EXPECT_TRUE(desk.releases.empty());
  desk.wait(seconds(61));
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s3"});  // the one without a worker yet
}

TEST(ReplacementPolicy, AServerWhoseWorkerStaysAwayIsReleased) {
  Desk desk(two_zones());
  desk.settle();
  desk.feed(policy_event::Gone{MemberId{2}});
  desk.wait(seconds(15));
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s2"});
}

/// What it runs fails, at once and always; a server that was taken away says nothing of that kind.
TEST(ReplacementPolicy, TheThirdServerInARowWhoseWorkerFailedBeforeItJoinedStopsTheOffer) {
  for (const bool failed : {true, false}) {
    ReplacementOptions options = two_zones();
    options.offers = {{offer("a"), 1.0, 1.0}};
    options.target = 1;
    Desk desk(options);
    for (int failures = 1; failures <= 3; ++failures) {
      ASSERT_FALSE(desk.requests.empty()) << failures;
      desk.grant(desk.requests[0]);
      ServerStatus gone = Desk::server("s" + std::to_string(failures), {});
      gone.state = ServerState::kGone;
      gone.failed = failed;
      gone.detail = "no data set";
      desk.feed(policy_event::Listed{std::vector<ServerStatus>{gone}});
      EXPECT_EQ(desk.was_told("offer_stopped"), failed && failures == 3) << failures;
      desk.wait(seconds(300));
    }
    EXPECT_EQ(desk.requests.empty(), failed);
  }
}

TEST(ReplacementPolicy, AServerThatBringsNoWorkerIsGivenUpAndTheThirdStopsTheOffer) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  options.target = 1;
  options.join_timeout = seconds(100);
  Desk desk(options);
  for (int failures = 1; failures <= 3; ++failures) {
    ASSERT_FALSE(desk.requests.empty()) << failures;
    desk.grant(desk.requests[0]);
    desk.wait(seconds(100));
    EXPECT_EQ(desk.was_told("offer_stopped"), failures == 3);
    desk.wait(seconds(30));
  }
  desk.wait(std::chrono::hours(1));
  EXPECT_TRUE(desk.requests.empty());
}

TEST(ReplacementPolicy, GoingDownGivesUpTheDearestFirstAndKeepsTheFloor) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  options.on_demand_floor = 1;
  options.offers = {{offer("a"), 1.0, 1.0}, {offer("a", Market::kOnDemand), 5.0, 1.0}};
  Desk desk(options);
  ASSERT_EQ(desk.requests.size(), 2u);
  EXPECT_EQ(desk.requests[0].request.offer.market, Market::kOnDemand);
  EXPECT_EQ(desk.requests[0].request.count, 1u);
  EXPECT_EQ(desk.requests[1].request.count, 2u);
  desk.settle();
  desk.feed(policy_event::Scaled{2});
  EXPECT_EQ(desk.drains, std::vector<MemberId>{MemberId{3}});  // on demand is dearer, but the floor
}

TEST(ReplacementPolicy, WhoIsIrreplaceableIsNotGivenUp) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  Desk desk(options);
  desk.settle();
  desk.feed(policy_event::Irreplaceable{MemberId{3}});
  desk.feed(policy_event::Joined{MemberId{9}, "another's"});  // started by hand
  desk.feed(policy_event::Irreplaceable{MemberId{9}});
  desk.feed(policy_event::Scaled{1});
  EXPECT_EQ(desk.drains, (std::vector<MemberId>{MemberId{2}, MemberId{1}}));
}

TEST(ReplacementPolicy, TheHourlyBudgetBoundsWhatRunsAtOnce) {
  ReplacementOptions options = two_zones();
  options.target = 5;
  options.budget_per_hour = 4.5;  // 4 at 1.0; none at 2.0 beside them
  Desk desk(options);
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.count, 4u);
  EXPECT_TRUE(desk.was_told("budget"));
  EXPECT_LE(desk.status().per_hour, 4.5);
}

TEST(ReplacementPolicy, TheJobStopsBeforeTheBudgetIsUsedUpAndThenAllIsReleased) {
  ReplacementOptions options = two_zones();
  options.budget = 2.0;  // two servers at 1.0: one hour
  Desk desk(options);
  desk.settle();
  desk.wait(std::chrono::minutes(54));
  EXPECT_FALSE(desk.stopped);
  desk.wait(std::chrono::minutes(2));
  EXPECT_TRUE(desk.stopped);
  EXPECT_TRUE(desk.releases.empty());
  desk.wait(std::chrono::minutes(3));
  EXPECT_EQ(desk.releases.size(), 2u);
  EXPECT_LT(desk.status().spent, 2.0);
  EXPECT_EQ(desk.status().staying, 0u);
}

TEST(ReplacementPolicy, ARestartedCoordinatorLooksBeforeItAsks) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  options.restarted = true;
  options.spent_before = 3;
  Desk desk(options);
  EXPECT_TRUE(desk.requests.empty());
  ServerStatus left = Desk::server("left", {});
  left.offer = offer("a");
  desk.feed(policy_event::Listed{std::vector<ServerStatus>{left}});
  EXPECT_TRUE(desk.was_told("server_adopted"));
  EXPECT_TRUE(desk.requests.empty());        // more may still appear
  for (int lists = 0; lists < 2; ++lists) {  // asked for 15 and 35 seconds after the start
    desk.wait(seconds(20));
    desk.feed(policy_event::Listed{std::vector<ServerStatus>{left}});
    EXPECT_TRUE(desk.requests.empty());
  }
  desk.wait(seconds(20));
  desk.feed(policy_event::Listed{std::vector<ServerStatus>{left}});
  ASSERT_EQ(desk.requests.size(), 1u);
  EXPECT_EQ(desk.requests[0].request.count, 1u);
  EXPECT_GT(desk.status().spent, 3.0);
}

TEST(ReplacementPolicy, TheEndReleasesEverythingEvenWhatIsAnsweredLater) {
  Desk desk(two_zones());
  const policy_effect::Request request = desk.requests[0];
  desk.feed(policy_event::Ended{});
  desk.grant(request);
  EXPECT_EQ(desk.releases, (std::vector<std::string>{"s1", "s2"}));
}

TEST(ReplacementPolicy, WhoGoesWhenTheJobHasEndedIsNotReplaced) {
  Desk desk(two_zones());
  desk.settle();
  desk.feed(policy_event::Closing{});
  desk.feed(policy_event::Gone{MemberId{1}});
  ServerStatus ended = Desk::server("s1", {});
  ended.state = ServerState::kGone;
  desk.feed(policy_event::Listed{std::vector<ServerStatus>{ended, Desk::server("s2", {})}});
  desk.wait(seconds(5));
  EXPECT_TRUE(desk.requests.empty());
  EXPECT_TRUE(desk.releases.empty()) << "the other one may still write a checkpoint";
  desk.feed(policy_event::Ended{});
  EXPECT_EQ(desk.releases, std::vector<std::string>{"s2"});
}

TEST(ReplacementPolicy, TheEndReleasesAlsoWhatAnEarlierProcessLeft) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  options.restarted = true;
  Desk desk(options);
  desk.feed(policy_event::Ended{});
  EXPECT_FALSE(desk.settled()) << "nobody has looked yet";
  ServerRequest before;
  before.offer = offer("a");
  desk.feed(policy_event::Listed{std::vector<ServerStatus>{Desk::server("left", before)}});
  EXPECT_EQ(desk.releases, std::vector<std::string>{"left"});
  desk.feed(policy_event::Listed{std::vector<ServerStatus>{}});
  EXPECT_FALSE(desk.settled()) << "one that was asked for last may not be listed yet";
  for (int lists = 0; lists < 7; ++lists) {
    desk.wait(seconds(15));
    desk.feed(policy_event::Listed{std::vector<ServerStatus>{}});
  }
  EXPECT_TRUE(desk.settled());
  EXPECT_TRUE(desk.requests.empty());
}

TEST(ReplacementPolicy, WorkersStartedByHandCountAndLeaveLast) {
  Desk desk(two_zones());
  desk.settle();
  desk.feed(policy_event::Joined{MemberId{7}, ""});
  desk.feed(policy_event::Scaled{3});
  EXPECT_TRUE(desk.requests.empty());
  desk.feed(policy_event::Scaled{2});
  EXPECT_EQ(desk.drains, std::vector<MemberId>{MemberId{2}});
}

}  // namespace
}  // namespace mayfly::cloud_hooks
