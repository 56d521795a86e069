// Servers that a restarted coordinator finds: those of the process before it, and those of other
// jobs.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/cloud_hooks/policy_harness.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::offer;
using test_support::PolicyHarness;
using test_support::two_zones;

TEST(AdoptedServers, ARestartedCoordinatorLooksBeforeItAsks) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  options.restarted = true;
  options.spent_before = 3;
  PolicyHarness policy(options);
  EXPECT_TRUE(policy.requests.empty());
  ServerStatus left = PolicyHarness::server("left", {});
  left.offer = offer("a");
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{left}});
  EXPECT_TRUE(policy.was_told("server_adopted"));
  EXPECT_TRUE(policy.requests.empty());      // a later list may show more
  for (int lists = 0; lists < 2; ++lists) {  // requested 15 and 35 seconds after the start
    policy.wait(seconds(20));
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{left}});
    EXPECT_TRUE(policy.requests.empty());
  }
  policy.wait(seconds(20));
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{left}});
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 1u);
  EXPECT_GT(policy.status().spent, 3.0);
}

TEST(AdoptedServers, AreNotThoseOfAnotherJobOfTheSameName) {
  for (const bool is_restarted : {false, true}) {
    ReplacementOptions options = two_zones();
    options.provider.survives_us = true;
    options.restarted = is_restarted;
    options.job_mark = "0badcafe";
    PolicyHarness policy(options);
    ServerRequest theirs;
    theirs.request_id = "12345678-1234-4234-8234-123456789abc";
    theirs.offer = offer("a");
    const std::vector<ServerStatus> listed{PolicyHarness::server("theirs", theirs)};
    policy.feed(policy_event::Listed{listed});
    const std::vector<policy_effect::Request> wanted = policy.requests;
    EXPECT_FALSE(policy.was_told("server_adopted"));
    EXPECT_NE(policy.text_of("other_job").find("1 of the listed servers"), std::string::npos);
    if (!is_restarted) {
      ASSERT_EQ(wanted.size(), 1u);
      EXPECT_TRUE(wanted[0].request.request_id.ends_with("0badcafe"));
      policy.grant(wanted[0]);
      EXPECT_EQ(policy.status().staying, 2u);
    }
    std::vector<std::string> released;
    for (int lists = 0; lists < 100; ++lists) {
      policy.wait(seconds(15));
      released.insert(released.end(), policy.releases.begin(), policy.releases.end());
      policy.feed(policy_event::Listed{listed});
      released.insert(released.end(), policy.releases.begin(), policy.releases.end());
    }
    policy.feed(policy_event::Ended{});
    released.insert(released.end(), policy.releases.begin(), policy.releases.end());
    EXPECT_EQ(std::ranges::count(released, "theirs"), 0);
  }
}

/// Their workers may have trained for days, and ended only because they found no coordinator.
TEST(AdoptedServers, ThatHaveShutThemselvesDownDoNotStopTheirOffer) {
  ReplacementOptions options = two_zones();
  options.offers = {{offer("a"), 1.0, 1.0}};
  options.provider.survives_us = true;
  options.restarted = true;
  PolicyHarness policy(options);
  std::vector<ServerStatus> left;
  for (const char* id : {"x", "y", "z"}) {
    left.push_back(PolicyHarness::server(id, {}));
    left.back().offer = offer("a");
    left.back().state = ServerState::kStopping;
    left.back().failed = true;
  }
  policy.feed(policy_event::Listed{left});
  EXPECT_EQ(policy.releases, (std::vector<std::string>{"x", "y", "z"}));
  EXPECT_FALSE(policy.was_told("offer_stopped"));
  EXPECT_FALSE(policy.status().no_worker_comes);
  for (ServerStatus& server : left) {
    server.state = ServerState::kGone;
  }
  for (int lists = 0; lists < 3; ++lists) {  // the last one is requested after 45 seconds
    policy.wait(seconds(20));
    policy.feed(policy_event::Listed{left});
  }
  ASSERT_EQ(policy.requests.size(), 1u);
  EXPECT_EQ(policy.requests[0].request.count, 2u);
}

TEST(AdoptedServers, AreGivenUpAtTheEndOfTheirLifetime) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  options.restarted = true;
  options.lifetime_max = seconds(3600);
  options.leave_timeout = seconds(100);
  PolicyHarness policy(options);
  policy.feed(policy_event::Joined{MemberId{7}, "left"});
  ServerStatus left = PolicyHarness::server("left", {});
  left.offer = offer("a");
  left.uptime = seconds(3000);
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{left}});
  EXPECT_TRUE(policy.was_told("server_adopted"));
  EXPECT_TRUE(policy.drains.empty());
  policy.wait(seconds(499));
  EXPECT_TRUE(policy.drains.empty());
  policy.wait(seconds(2));
  EXPECT_EQ(policy.drains, std::vector<MemberId>{MemberId{7}});
  EXPECT_TRUE(policy.was_told("server_given_up"));
}

/// If servers exhaust the budget while there is no coordinator, engine/cloud extends the budget by
/// as much as the job needs to stop.
TEST(AdoptedServers, AreReleasedMinutesAfterTheStopIfABudgetIsUsedUpMeanwhile) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  options.restarted = true;
  options.spent_before = 13;
  options.per_hour_before = 1;
  options.budget = 13 + to_seconds(options.stop_margin) / 3600;
  PolicyHarness policy(options);
  EXPECT_TRUE(policy.stopped);
  ServerStatus left = PolicyHarness::server("left", {});
  left.offer = offer("a");
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{left}});
  EXPECT_TRUE(policy.releases.empty());
  policy.wait(seconds(150));
  EXPECT_TRUE(policy.releases.empty());
  policy.wait(seconds(50));
  EXPECT_EQ(policy.releases, std::vector<std::string>{"left"});
  EXPECT_TRUE(policy.requests.empty());
}

TEST(AdoptedServers, TheEndReleasesAlsoWhatAnEarlierProcessLeft) {
  ReplacementOptions options = two_zones();
  options.provider.survives_us = true;
  options.restarted = true;
  PolicyHarness policy(options);
  policy.feed(policy_event::Ended{});
  EXPECT_FALSE(policy.settled()) << "nobody has looked yet";
  ServerRequest before;
  before.offer = offer("a");
  policy.feed(
      policy_event::Listed{std::vector<ServerStatus>{PolicyHarness::server("left", before)}});
  EXPECT_EQ(policy.releases, std::vector<std::string>{"left"});
  policy.feed(policy_event::Listed{std::vector<ServerStatus>{}});
  EXPECT_FALSE(policy.settled()) << "one that was asked for last may not be listed yet";
  for (int lists = 0; lists < 7; ++lists) {
    policy.wait(seconds(15));
    policy.feed(policy_event::Listed{std::vector<ServerStatus>{}});
  }
  EXPECT_TRUE(policy.settled());
  EXPECT_TRUE(policy.requests.empty());
}

}  // namespace
}  // namespace mayfly::cloud_hooks
