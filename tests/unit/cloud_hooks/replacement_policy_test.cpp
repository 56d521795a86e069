#include "cloud_hooks/core/replacement_policy.hpp"

#include <gtest/gtest.h>

#include "cloud_hooks/core/provider.hpp"
#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::error_of;
using test_support::listed;
using test_support::offer;
using test_support::PolicyHarness;
using test_support::two_zones;

TEST(ReplacementPolicy, AsksForTheTargetWhereSpeedCostsLeast) {
  PolicyHarness policy(two_zones());
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 2u);
  EXPECT_EQ(policy.requests[0].request.offer, offer("a"));
  EXPECT_EQ(policy.requests[0].request.request_id.size(), 36u) << "a UUID";
  EXPECT_EQ(policy.requests[0].request.lifetime_max, seconds(86400));
}

TEST(ReplacementPolicy, AMeasuredSpeedDecidesNotOnlyThePrice) {
  ReplacementOptions options = two_zones();
  options.offers[1].offer.machine_type = "faster";
  options.offers[0].speed = options.offers[1].speed = 1;
  PolicyHarness policy(options);
  policy.settle();
  policy.feed(policy_event::Measured{MemberId{1}, 10});
  policy.feed(policy_event::Scaled{3});  // the other type counts as equally fast, and costs more
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.offer.machine_type, "gpu");
  policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kCapacity));
  policy.settle();
  policy.feed(policy_event::Measured{MemberId{3}, 40});
  policy.wait(seconds(600));
  policy.feed(policy_event::Scaled{4});
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.offer.machine_type, "faster");
}

TEST(ReplacementPolicy, WhatCannotBeSentYetIsDecidedAndBilledLater) {
  ReplacementOptions options = two_zones();
  options.target = 4;
  options.provider.count_max = 1;
  options.requests_at_once = 2;
  PolicyHarness policy(options);
  std::vector<policy_effect::Request> sent = policy.requests;
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_DOUBLE_EQ(policy.status().per_hour, 2.0);
  EXPECT_FALSE(policy.was_told("offers_exhausted") || policy.was_told("budget"));
  policy.feed(policy_event::Scaled{3});
  EXPECT_TRUE(policy.requests.empty());
  policy.grant(sent[0]);
  ASSERT_EQ(policy.requests.size(), 1u);
  sent.push_back(policy.requests[0]);
  policy.grant(sent[1]);
  EXPECT_TRUE(policy.requests.empty()) << "the fourth is not wanted any more";
  policy.feed(policy_event::Scaled{4});
  EXPECT_EQ(policy.requests.size(), 1u);
}

TEST(ReplacementPolicy, AStockOutGoesToTheNextOfferAtOnceAndBackLater) {
  PolicyHarness policy(two_zones());
  policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kCapacity));
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.offer, offer("b"));
  policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kCapacity));
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_TRUE(policy.was_told("offers_exhausted"));
  policy.wait(seconds(6));
  ASSERT_FALSE(policy.requests.empty());
  EXPECT_EQ(policy.requests[0].request.offer, offer("a"));
}

TEST(ReplacementPolicy, APartialGrantIsKeptAndTheRestGoesElsewhere) {
  PolicyHarness policy(two_zones());
  RequestOutcome outcome;
  outcome.servers.push_back(PolicyHarness::server("one", policy.requests[0].request));
  outcome.error = error_of(ProviderErrorKind::kCapacity);
  policy.feed(policy_event::Answered{policy.requests[0].request.request_id, outcome});
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 1u);
  EXPECT_EQ(policy.requests[0].request.offer, offer("b"));
}

TEST(ReplacementPolicy, ZonesThatTheProviderNamesComeFirst) {
  ReplacementOptions options = two_zones();
  options.offers.push_back({offer("c"), 3.0, 1.0});
  PolicyHarness policy(options);
  ProviderError error = error_of(ProviderErrorKind::kCapacity);
  error.zones_available = {"c"};
  policy.refuse(policy.requests[0], error);
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.offer, offer("c"));
}

TEST(ReplacementPolicy, AQuotaStopsAskingUntilAServerOfThatKindHasEnded) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  PolicyHarness policy(options);
  policy.settle();
  policy.feed(policy_event::Scaled{3});
  policy.refuse(policy.requests.at(0), error_of(ProviderErrorKind::kQuota));
  EXPECT_TRUE(policy.was_told("offer_stopped"));
  policy.wait(std::chrono::hours(2));
  EXPECT_TRUE(policy.requests.empty());
  ServerStatus gone = PolicyHarness::server("s1", {});
  gone.state = ServerState::kGone;
  ServerStatus other = PolicyHarness::server("s2", {});
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{gone, other}});
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 2u);
}

TEST(ReplacementPolicy, AServerThatIsListedBeforeItsCreationFailsIsNotWaitedFor) {
  PolicyHarness policy(two_zones());
  const policy_effect::Request request = policy.requests[0];
  ServerStatus ghost = PolicyHarness::server("ghost", request.request);
  ghost.state = ServerState::kStarting;
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{ghost}});
  EXPECT_TRUE(policy.was_told("server_granted"));
  RequestOutcome outcome;
  outcome.servers.push_back(PolicyHarness::server("made", request.request));
  outcome.error = error_of(ProviderErrorKind::kCapacity);
  policy.feed(policy_event::Answered{request.request.request_id, outcome});
  EXPECT_TRUE(policy.was_told("server_ended"));
  EXPECT_EQ(policy.status().staying, 1u);
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 1u);
  EXPECT_DOUBLE_EQ(policy.status().per_hour, 3.0) << "one here, one elsewhere";
}

TEST(ReplacementPolicy, AServerThatAnEarlierAttemptMayHaveMadeIsKept) {
  PolicyHarness policy(two_zones());
  const policy_effect::Request request = policy.requests[0];
  policy.refuse(request, error_of(ProviderErrorKind::kRate));
  ServerStatus made = PolicyHarness::server("made", request.request);
  made.state = ServerState::kStarting;
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{made}});
  policy.wait(seconds(1));
  ASSERT_EQ(policy.requests.size(), 1u);
  ASSERT_TRUE(policy.requests[0].is_repeat);
  policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kCapacity));
  EXPECT_FALSE(policy.was_told("server_ended"));
  EXPECT_EQ(policy.status().staying, 1u);
}

TEST(ReplacementPolicy, WhatAPersonMustMendIsNotAskedForAgainUntilScale) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  for (const ProviderErrorKind kind : {ProviderErrorKind::kAuth, ProviderErrorKind::kConfig}) {
    PolicyHarness policy(options);
    policy.refuse(policy.requests[0], error_of(kind));
    EXPECT_TRUE(policy.was_told("offer_stopped"));
    policy.wait(std::chrono::hours(2));
    EXPECT_TRUE(policy.requests.empty());
    policy.feed(policy_event::Scaled{2});
    EXPECT_EQ(policy.requests.size(), 1u);
  }
}

TEST(ReplacementPolicy, ALostAnswerIsRepeatedAsItWas) {
  PolicyHarness policy(two_zones());
  const ServerRequest first = policy.requests[0].request;
  policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kRate));
  EXPECT_TRUE(policy.requests.empty());
  policy.wait(seconds(2));
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_TRUE(policy.requests[0].is_repeat);
  EXPECT_EQ(policy.requests[0].request, first);
  EXPECT_EQ(policy.status().coming, 2u);
}

TEST(ReplacementPolicy, ARequestThatIsNeverAnsweredIsSettledByTheList) {
  ReplacementOptions options = two_zones();
  options.repeats_max = 1;
  PolicyHarness policy(options);
  const ServerRequest first = policy.requests[0].request;
  policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kRate));
  policy.wait(seconds(2));
  policy.refuse(policy.requests.at(0), error_of(ProviderErrorKind::kRate));
  ASSERT_EQ(policy.requests.size(), 1u);  // in another zone, so that the job need not wait
  EXPECT_EQ(policy.requests[0].request.offer, offer("b"));
  policy.settle();
  policy.feed(policy_event::Listed{
      std::vector<ServerStatus>{PolicyHarness::server("s1", {}), PolicyHarness::server("s2", {}),
                                PolicyHarness::server("late", first)}});
  EXPECT_TRUE(policy.was_told("server_granted"));
  policy.wait(seconds(61));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"late"});
}

TEST(ReplacementPolicy, WhatARequestMayHaveMadeUnseenIsBilledForTheLeastTime) {
  PolicyHarness policy(two_zones());
  const policy_effect::Request request = policy.requests[0];  // two servers at 1.0
  policy.feed(policy_event::Ended{});
  policy.refuse(request, error_of(ProviderErrorKind::kRate));
  EXPECT_DOUBLE_EQ(policy.status().per_hour, 2.0) << "until lists show what became of it";
  bool given_up = false;
  for (int lists = 0; lists < 5; ++lists) {
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{}});
    given_up = given_up || policy.was_told("request_given_up");
    policy.wait(seconds(15));
  }
  EXPECT_TRUE(given_up);
  EXPECT_DOUBLE_EQ(policy.status().per_hour, 0);
  EXPECT_DOUBLE_EQ(policy.status().spent, 2 * 1.0 / 60);
}

TEST(ReplacementPolicy, IfListsFailedForLongItIsBilledForAllThatTime) {
  PolicyHarness policy(two_zones());
  const policy_effect::Request request = policy.requests[0];  // two servers at 1.0
  policy.feed(policy_event::Ended{});
  policy.refuse(request, error_of(ProviderErrorKind::kRate));
  for (int lists = 0; lists < 40; ++lists) {
    policy.feed(policy_event::Listed{error_of(ProviderErrorKind::kRate)});
    policy.wait(seconds(15));
  }
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{}});
  EXPECT_TRUE(policy.was_told("request_given_up"));
  EXPECT_DOUBLE_EQ(policy.status().per_hour, 0);
  EXPECT_NEAR(policy.status().spent, 2 * 1.0 * 600 / 3600, 2 * 1.0 * 15 / 3600);
}

TEST(ReplacementPolicy, AServerThatIsFirstSeenWhenItHasEndedIsBilled) {
  PolicyHarness policy(two_zones());
  const policy_effect::Request request = policy.requests[0];
  RequestOutcome outcome;
  outcome.servers.push_back(PolicyHarness::server("short", request.request));
  outcome.servers[0].state = ServerState::kGone;
  outcome.error = error_of(ProviderErrorKind::kCapacity);
  policy.now = policy.now + seconds(5);
  policy.feed(policy_event::Answered{request.request.request_id, outcome});
  EXPECT_TRUE(policy.was_told("server_refused"));
  const double asked_now = 2 * 2.0 / 60;  // two servers at 2.0 in the other zone, for a minute
  EXPECT_DOUBLE_EQ(policy.status().spent, 1.0 / 60 + asked_now);
}

TEST(ReplacementPolicy, AListThatShowsAnEndedServerOfALostAnswerBillsItOnce) {
  ReplacementOptions options = two_zones();
  options.repeats_max = 1;
  PolicyHarness policy(options);
  const ServerRequest first = policy.requests[0].request;
  policy.refuse(policy.requests[0], error_of(ProviderErrorKind::kRate));
  policy.wait(seconds(2));
  policy.refuse(policy.requests.at(0), error_of(ProviderErrorKind::kRate));
  EXPECT_DOUBLE_EQ(policy.status().per_hour, 6.0)
      << "two that may exist, and two asked for instead";
  ServerStatus ended = PolicyHarness::server("ended", first);
  ended.state = ServerState::kGone;
  for (int lists = 0; lists < 2; ++lists) {
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{ended}});
    EXPECT_DOUBLE_EQ(policy.status().per_hour, 5.0);
    EXPECT_DOUBLE_EQ(policy.status().spent, 6.0 / 60) << "a minute at least";
  }
}

TEST(ReplacementPolicy, ManyLossesAtOnceAreOneRequestElsewhere) {
  ReplacementOptions options = two_zones();
  options.target = 4;
  PolicyHarness policy(options);
  policy.settle();
  for (std::uint64_t member = 1; member <= 3; ++member) {
    policy.feed(policy_event::Gone{MemberId{member}});
    EXPECT_TRUE(policy.requests.empty());
    policy.now = policy.now + milliseconds(2);
  }
  policy.wait(milliseconds(20));
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 3u);
  EXPECT_EQ(policy.requests[0].request.offer, offer("b"));
  EXPECT_LE(policy.now - policy.requests[0].loss.value(), milliseconds(30));
}

TEST(ReplacementPolicy, ANoticeBringsAReplacementBeforeTheWorkerIsGone) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Leaving{MemberId{1}});
  policy.wait(milliseconds(20));
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 1u);
  policy.feed(policy_event::Gone{MemberId{1}});  // s1 is billed until it is released
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s1"});
}

TEST(ReplacementPolicy, AWorkerThatComesBackKeepsItsServerAndTheSurplusGoes) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Gone{MemberId{2}});
  policy.wait(milliseconds(20));
  policy.grant(policy.requests.at(0));
  policy.feed(policy_event::Joined{MemberId{9}, "s2"});
  EXPECT_EQ(policy.status().staying, 3u);
  EXPECT_TRUE(policy.releases.empty());
  policy.wait(seconds(61));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s3"});  // it has no worker yet
}

TEST(ReplacementPolicy, AServerWhoseWorkerStaysAwayIsReleased) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Gone{MemberId{2}});
  policy.feed(listed({"s1", "s2"}));
  policy.wait(seconds(15));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s2"});
}

/// Workers that fail one after the other show that the offer cannot run them. Servers that were
/// taken away do not.
TEST(ReplacementPolicy, TheThirdServerInARowWhoseWorkerFailedBeforeItJoinedStopsTheOffer) {
  for (const bool failed : {true, false}) {
    ReplacementOptions options = two_zones();
    options.offers = {{offer("a"), 1.0, 1.0}};
    options.target = 1;
    PolicyHarness policy(options);
    for (int failures = 1; failures <= 3; ++failures) {
      ASSERT_FALSE(policy.requests.empty()) << failures;
      policy.grant(policy.requests[0]);
      ServerStatus gone = PolicyHarness::server("s" + std::to_string(failures), {});
      gone.state = ServerState::kGone;
      gone.failed = failed;
      gone.detail = "no data set";
      policy.feed(policy_event::Listed{std::vector<ServerStatus>{gone}});
      EXPECT_EQ(policy.was_told("offer_stopped"), failed && failures == 3) << failures;
      policy.wait(seconds(300));
    }
    EXPECT_EQ(policy.requests.empty(), failed);
  }
}

/// A stopped server is paid for until it is released.
TEST(ReplacementPolicy, AServerThatShutItselfDownIsReleasedAndTheThirdStopsTheOffer) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  options.target = 1;
  PolicyHarness policy(options);
  for (int failures = 1; failures <= 3; ++failures) {
    ASSERT_FALSE(policy.requests.empty()) << failures;
    policy.grant(policy.requests[0]);
    ServerStatus server = PolicyHarness::server("s" + std::to_string(failures), {});
    server.state = ServerState::kStopping;  // the cause is not known yet
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
    EXPECT_TRUE(policy.releases.empty());
    server.failed = true;
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
    EXPECT_EQ(policy.releases, std::vector<std::string>{server.id});
    EXPECT_EQ(policy.was_told("offer_stopped"), failures == 3) << failures;
    EXPECT_EQ(policy.was_told("no_server_starts"), failures == 3) << failures;
    server.state = ServerState::kGone;
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{server}});
    EXPECT_FALSE(policy.was_told("offer_stopped")) << "counted once";
    policy.wait(seconds(300));
  }
  EXPECT_TRUE(policy.requests.empty());
}

TEST(ReplacementPolicy, AServerThatBringsNoWorkerIsGivenUpAndTheThirdStopsTheOffer) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  options.target = 1;
  options.join_timeout = seconds(100);
  PolicyHarness policy(options);
  for (int failures = 1; failures <= 3; ++failures) {
    ASSERT_FALSE(policy.requests.empty()) << failures;
    policy.grant(policy.requests[0]);
    policy.wait(seconds(100));
    EXPECT_EQ(policy.was_told("offer_stopped"), failures == 3);
    policy.wait(seconds(30));
  }
  policy.wait(std::chrono::hours(1));
  EXPECT_TRUE(policy.requests.empty());
}

TEST(ReplacementPolicy, GoingDownGivesUpTheDearestFirstAndKeepsTheFloor) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  options.on_demand_floor = 1;
  options.offers = {{offer("a"), 1.0, 1.0}, {offer("a", Market::kOnDemand), 5.0, 1.0}};
  PolicyHarness policy(options);
  ASSERT_EQ(policy.requests.size(), 2u);
  EXPECT_EQ(policy.requests[0].request.offer.market, Market::kOnDemand);
  EXPECT_EQ(policy.requests[0].request.count, 1u);
  EXPECT_EQ(policy.requests[1].request.count, 2u);
  policy.settle();
  policy.feed(policy_event::Scaled{2});
  // The on-demand server is dearer, but the floor needs it.
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{3}});
}

TEST(ReplacementPolicy, WhoIsIrreplaceableIsNotGivenUp) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  PolicyHarness policy(options);
  policy.settle();
  policy.feed(policy_event::Irreplaceable{MemberId{3}});
  policy.feed(policy_event::Joined{MemberId{9}, "another's"});  // its worker was started by hand
  policy.feed(policy_event::Irreplaceable{MemberId{9}});
  policy.feed(policy_event::Scaled{1});
  EXPECT_EQ(policy.drains, (std::vector<MemberId>{MemberId{2}, MemberId{1}}));
}

TEST(ReplacementPolicy, TheHourlyBudgetBoundsWhatRunsAtOnce) {
  ReplacementOptions options = two_zones();
  options.target = 5;
  options.budget_per_hour = 4.5;  // enough for 4 servers at 1.0, but for none at 2.0 beside them
  PolicyHarness policy(options);
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 4u);
  EXPECT_TRUE(policy.was_told("budget"));
  EXPECT_LE(policy.status().per_hour, 4.5);
}

TEST(ReplacementPolicy, TheJobStopsBeforeTheBudgetIsUsedUpAndThenAllIsReleased) {
  ReplacementOptions options = two_zones();
  options.budget = 2.0;  // one hour of two servers at 1.0
  PolicyHarness policy(options);
  policy.settle();
  policy.wait(std::chrono::minutes(54));
  EXPECT_FALSE(policy.stopped);
  policy.wait(std::chrono::minutes(2));
  EXPECT_TRUE(policy.stopped);
  EXPECT_TRUE(policy.releases.empty());
  policy.wait(std::chrono::minutes(3));
  EXPECT_EQ(policy.releases.size(), 2u);
  EXPECT_LT(policy.status().spent, 2.0);
  EXPECT_EQ(policy.status().staying, 0u);
}

TEST(ReplacementPolicy, TheEndReleasesEverythingEvenWhatIsAnsweredLater) {
  PolicyHarness policy(two_zones());
  const policy_effect::Request request = policy.requests[0];
  policy.feed(policy_event::Ended{});
  policy.grant(request);
  EXPECT_EQ(policy.releases, (std::vector<std::string>{"s1", "s2"}));
}

TEST(ReplacementPolicy, WhoGoesWhenTheJobHasEndedIsNotReplaced) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Closing{});
  policy.feed(policy_event::Gone{MemberId{1}});
  ServerStatus ended = PolicyHarness::server("s1", {});
  ended.state = ServerState::kGone;
  policy.feed(
      policy_event::Listed{std::vector<ServerStatus>{ended, PolicyHarness::server("s2", {})}});
  policy.wait(seconds(5));
  EXPECT_TRUE(policy.requests.empty());
  EXPECT_TRUE(policy.releases.empty()) << "the other one may still write a checkpoint";
  policy.feed(policy_event::Ended{});
  EXPECT_EQ(policy.releases, std::vector<std::string>{"s2"});
}

TEST(ReplacementPolicy, ServersWithoutAWorkerGoWhenTheJobHasEndedExceptThoseOfEvaluators) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  options.evaluators = 1;
  options.offers.push_back({offer("c"), 1.0, 1.0, true});
  PolicyHarness policy(options);
  const std::vector<policy_effect::Request> wanted = policy.requests;
  ASSERT_EQ(wanted.size(), 2u);
  policy.grant(wanted[0]);
  policy.grant(wanted[1]);  // s4
  policy.feed(policy_event::Joined{MemberId{1}, "s1"});
  policy.feed(policy_event::Joined{MemberId{2}, "s2"});
  policy.feed(policy_event::Gone{MemberId{2}});
  policy.feed(policy_event::Closing{});
  EXPECT_EQ(policy.releases, (std::vector<std::string>{"s2", "s3"}));
}

TEST(ReplacementPolicy, WorkersStartedByHandCountAndLeaveLast) {
  PolicyHarness policy(two_zones());
  policy.settle();
  policy.feed(policy_event::Joined{MemberId{7}, ""});
  policy.feed(policy_event::Scaled{3});
  EXPECT_TRUE(policy.requests.empty());
  policy.feed(policy_event::Scaled{2});
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{2}});
}

}  // namespace
}  // namespace mayfly::cloud_hooks
