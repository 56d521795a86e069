// The rules of Fleet by itself; unnamed_workers_test.cpp has those for workers that do not name
// their server.

#include "cloud_hooks/core/fleet.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"
#include "tests/unit/cloud_hooks/policy_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::PolicyParts;
using test_support::two_zones;

TEST(Fleet, AServerWaitsForItsWorkerAndThenWorks) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0);
  EXPECT_EQ(parts.fleet.next_deadline(), parts.now + parts.options.join_timeout);
  EXPECT_EQ(parts.fleet.working(0), 0u);
  const Fleet::Server* const server = parts.fleet.joined(parts.now, MemberId{1}, "s1");
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->stage, Fleet::Stage::kWorking);
  EXPECT_FALSE(parts.fleet.next_deadline());
  EXPECT_EQ(parts.fleet.working(0), 1u);
  EXPECT_EQ(parts.fleet.staying(), 1u) << "server and worker are one";
}

TEST(Fleet, AWorkerMayJoinBeforeItsServerIsKnown) {
  PolicyParts parts(two_zones());
  EXPECT_EQ(parts.fleet.joined(parts.now, MemberId{1}, "s1"), nullptr);
  EXPECT_EQ(parts.fleet.staying(), 1u);
  parts.run("s1", 0);
  EXPECT_EQ(parts.fleet.find("s1")->member, MemberId{1});
  EXPECT_EQ(parts.fleet.staying(), 1u);
}

TEST(Fleet, TheLossOfAnEarlierWorkerDoesNotTouchItsSuccessor) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  EXPECT_TRUE(parts.fleet.gone(parts.now, MemberId{1}, false));
  EXPECT_EQ(parts.fleet.find("s1")->stage, Fleet::Stage::kSilent);
  parts.fleet.joined(parts.now, MemberId{2}, "s1");
  parts.fleet.joined(parts.now, MemberId{3}, "s1");
  const auto loss = parts.fleet.gone(parts.now, MemberId{3}, false);
  ASSERT_TRUE(loss);
  EXPECT_FALSE(loss->may_concern_server);
  EXPECT_EQ(parts.fleet.find("s1")->member, MemberId{2});
  EXPECT_FALSE(parts.fleet.gone(parts.now, MemberId{3}, false)) << "it is unknown now";
}

TEST(Fleet, AServerStaysAsLongAsOneOfItsWorkersStays) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  for (const std::uint64_t member : {2, 3}) {
    parts.fleet.joined(parts.now, MemberId{member}, "s1");
  }
  const auto loss = parts.fleet.gone(parts.now, MemberId{1}, false);
  ASSERT_TRUE(loss);
  EXPECT_FALSE(loss->offer) << "the server is not lost";
  EXPECT_EQ(parts.fleet.find("s1")->stage, Fleet::Stage::kWorking);
  EXPECT_TRUE(parts.fleet.leaving(parts.now, MemberId{3}));
  EXPECT_EQ(parts.fleet.find("s1")->stage, Fleet::Stage::kWorking);
  EXPECT_FALSE(parts.fleet.next_deadline());
  EXPECT_TRUE(parts.fleet.gone(parts.now, MemberId{3}, false));
  EXPECT_EQ(parts.fleet.staying(), 1u);
  EXPECT_TRUE(parts.taken<policy_effect::Release>().empty());
  EXPECT_TRUE(parts.fleet.leaving(parts.now, MemberId{2}));
  EXPECT_EQ(parts.fleet.staying(), 0u);
  EXPECT_TRUE(parts.fleet.gone(parts.now, MemberId{2}, false));
  EXPECT_EQ(parts.taken<policy_effect::Release>().size(), 1u);
}

TEST(Fleet, EveryWorkerOfAServerThatIsGivenUpIsToldToLeave) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  parts.fleet.joined(parts.now, MemberId{2}, "s1");
  parts.fleet.let_go(parts.now, "s1");
  EXPECT_EQ(parts.taken<policy_effect::Drain>().at(0).member, MemberId{1});
  EXPECT_TRUE(parts.fleet.gone(parts.now, MemberId{1}, false));
  const std::vector<PolicyEffect> effects = parts.effects.take();
  ASSERT_EQ(effects.size(), 1u) << "it is not released yet";
  EXPECT_EQ(std::get<policy_effect::Drain>(effects[0]).member, MemberId{2});
  EXPECT_TRUE(parts.fleet.gone(parts.now, MemberId{2}, false));
  EXPECT_EQ(parts.taken<policy_effect::Release>().size(), 1u);
}

TEST(Fleet, NoWorkerOfAServerThatIsGoneCounts) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  parts.fleet.joined(parts.now, MemberId{2}, "s1");
  (void)parts.fleet.remove("s1");
  EXPECT_EQ(parts.fleet.staying(), 0u);
}

TEST(Fleet, ALostWorkerIsWaitedForFromTheProvidersNextAnswerOn) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  const auto loss = parts.fleet.gone(parts.now, MemberId{1}, false);
  EXPECT_EQ(loss->offer, 0u);
  EXPECT_TRUE(parts.fleet.has_unlisted_loss());
  EXPECT_TRUE(parts.fleet.keeps_waiting("s1")) << "this process may be the one that is cut off";
  EXPECT_FALSE(parts.fleet.next_deadline());
  parts.fleet.looked_for("s1", parts.now);
  const Instant answer = parts.now + seconds(100);
  parts.fleet.wait_anew_for_silent(answer);
  EXPECT_EQ(parts.fleet.next_deadline(), answer + parts.options.rejoin_patience);
  EXPECT_FALSE(parts.fleet.keeps_waiting("s1"));
}

TEST(Fleet, AServerIsReleasedWithItsLastWorkerIfItLeavesOrTheJobEnds) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  parts.run("s2", 0, 2);
  EXPECT_TRUE(parts.fleet.leaving(parts.now, MemberId{1}));
  EXPECT_FALSE(parts.fleet.leaving(parts.now, MemberId{1})) << "no news";
  EXPECT_TRUE(parts.fleet.gone(parts.now, MemberId{1}, false)->was_announced);
  EXPECT_FALSE(parts.fleet.gone(parts.now, MemberId{2}, true)->was_announced);
  EXPECT_EQ(parts.taken<policy_effect::Release>().size(), 2u);
  EXPECT_EQ(parts.fleet.ending(), 2u);
  EXPECT_EQ(parts.fleet.staying(), 0u);
}

TEST(Fleet, AWorkerIsToldToLeaveBeforeItsServerIsReleased) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  parts.run("s2", 0);
  parts.fleet.let_go(parts.now, "s1");
  EXPECT_EQ(parts.taken<policy_effect::Drain>().at(0).member, MemberId{1});
  parts.fleet.let_go(parts.now, "s2");
  EXPECT_EQ(parts.taken<policy_effect::Release>().at(0).server, "s2");
  EXPECT_EQ(parts.fleet.staying(), 0u);
}

TEST(Fleet, AServerThatGivesWayDoesNotCount) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  parts.fleet.set_gives_way("s1", true);
  EXPECT_EQ(parts.fleet.staying(), 0u);
  EXPECT_EQ(parts.fleet.present(0), 0u);
  parts.fleet.set_gives_way("s1", false);
  EXPECT_EQ(parts.fleet.staying(), 1u);
}

TEST(Fleet, AWorkerWhoseServerIsGoneDoesNotCountAnyMore) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  EXPECT_EQ(parts.fleet.remove("s1").member, MemberId{1});
  EXPECT_EQ(parts.fleet.staying(), 0u);
  EXPECT_EQ(parts.fleet.find("s1"), nullptr);
}

TEST(Fleet, ManuallyStartedWorkersCountAndCanBeDrainedUnlessTheyAreIrreplaceable) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  for (std::uint64_t member = 2; member <= 4; ++member) {
    parts.fleet.joined(parts.now, MemberId{member}, "by hand " + std::to_string(member));
  }
  parts.fleet.irreplaceable(MemberId{2});
  EXPECT_EQ(parts.fleet.staying(), 4u);
  parts.fleet.drain_without_server(9);
  EXPECT_EQ(parts.taken<policy_effect::Drain>().size(), 2u);
  EXPECT_EQ(parts.fleet.staying(), 2u);
}

TEST(Fleet, AServerThatShutsItselfDownBeforeItsWorkerJoinedIsReportedOnce) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0);
  EXPECT_TRUE(parts.fleet.stopping(parts.now, "s1", true));
  EXPECT_TRUE(parts.fleet.stopped(parts.now, "s1"));
  EXPECT_FALSE(parts.fleet.stopping(parts.now, "s1", true));
  EXPECT_FALSE(parts.fleet.stopped(parts.now, "s1"));
  EXPECT_EQ(parts.fleet.next_deadline(), parts.now) << "it is paid for, in vain";
}

TEST(Fleet, SpeedsAreThoseOfTheWorkerOrOfItsOffer) {
  PolicyParts parts(two_zones());
  parts.run("s1", 0, 1);
  EXPECT_EQ(parts.fleet.speed_of(*parts.fleet.find("s1")), 1.0);
  EXPECT_FALSE(parts.fleet.is_at_work(parts.now, *parts.fleet.find("s1")));
  EXPECT_EQ(parts.fleet.measured(MemberId{1}, 7.0), 0u);
  EXPECT_EQ(parts.fleet.speed_of(*parts.fleet.find("s1")), 7.0);
  EXPECT_TRUE(parts.fleet.is_at_work(parts.now, *parts.fleet.find("s1")));
}

}  // namespace
}  // namespace mayfly::cloud_hooks
