#include "elastic/core/claims.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

CoordinatorOptions until_step(std::uint64_t last) {
  CoordinatorOptions options;
  options.last_step = Step{last};
  return options;
}

std::vector<MemberId> members_of(const std::vector<Accusation>& accusations) {
  std::vector<MemberId> members;
  for (const Accusation& accusation : accusations) {
    members.push_back(accusation.member);
  }
  return members;
}

/// A membership whose members 1 to 3 have stopped after these steps.
Membership stopped_at(std::uint64_t first, std::uint64_t second, std::uint64_t third) {
  Membership membership = working({k1, k2, k3});
  membership.stopped(k1, stopped_after(first));
  membership.stopped(k2, stopped_after(second));
  membership.stopped(k3, stopped_after(third));
  return membership;
}

TEST(Claims, NeighbouringStepsAreCredible) {
  const ClaimJudge judge{CoordinatorOptions{}};
  EXPECT_TRUE(judge.false_steps(stopped_at(12, 13, 12)).empty());
  EXPECT_EQ(members_of(judge.false_steps(stopped_at(12, 14, 12))), std::vector<MemberId>{k2});
  EXPECT_EQ(members_of(judge.false_steps(stopped_at(10, 12, 12))), std::vector<MemberId>{k1});
  EXPECT_EQ(members_of(judge.false_steps(stopped_at(10, 12, 14))), (std::vector<MemberId>{k2, k3}))
      << "of equally many the higher ones";
}

TEST(Claims, ANewcomerMayBringAStepThatWasJustLostButNotMore) {
  const ClaimJudge judge{CoordinatorOptions{}};
  Membership membership = stopped_at(12, 12, 12);
  add_ready(membership, MemberId{4}, 14);
  EXPECT_TRUE(judge.false_steps(membership).empty());
  add_ready(membership, MemberId{5}, 15);
  const std::vector<Accusation> accused = judge.false_steps(membership);
  ASSERT_EQ(accused.size(), 1u);
  EXPECT_EQ(accused[0].member, MemberId{5});
  EXPECT_EQ(accused[0].reason,
            "says that it has committed step 15, while the others are at step 12");
}

TEST(Claims, ServersCountStepsThatNobodyHolds) {
  CoordinatorOptions options = until_step(12);
  options.steps_need_all_members = false;
  ClaimJudge judge{options};
  EXPECT_TRUE(judge.false_steps(stopped_at(12, 99, 0)).empty());
  EXPECT_TRUE(judge.false_ends(stopped_at(12, 99, 0)).empty());
}

TEST(Claims, NobodyEndsTheJobBeforeItsLastStep) {
  Membership membership = working({k1, k2});
  Stopped early = stopped_after(11);
  early.finished = true;
  membership.stopped(k1, early);
  membership.stopped(k2, stopped_after(11));
  EXPECT_EQ(members_of(ClaimJudge{until_step(12)}.false_ends(membership)),
            std::vector<MemberId>{k1});
  EXPECT_TRUE(ClaimJudge{until_step(11)}.false_ends(membership).empty());
  EXPECT_TRUE(ClaimJudge{CoordinatorOptions{}}.false_ends(membership).empty());
}

TEST(Claims, WhoNeverFinishesBesideTheOthersGoesInTheEnd) {
  Membership membership = working({k1, k2, k3});
  Stopped done = stopped_after(12);
  done.finished = true;
  membership.stopped(k1, done);
  membership.stopped(k2, done);
  membership.stopped(k3, stopped_after(12));
  ClaimJudge judge{until_step(12)};
  for (int view = 1; view < 8; ++view) {
    EXPECT_TRUE(judge.false_ends(membership).empty()) << view;
  }
  EXPECT_EQ(members_of(judge.false_ends(membership)), std::vector<MemberId>{k3});
}

TEST(Claims, AReportMustFitWhatTheMemberHasSaidAndHas) {
  Membership membership = working({k1, k2});
  EXPECT_EQ(inconsistency_in(stopped_after(10), k1, membership), std::nullopt);
  Stopped own = stopped_after(10);
  own.held = MicrobatchSet::range(0, 1);
  EXPECT_EQ(inconsistency_in(own, k1, membership), std::nullopt);
  EXPECT_NE(inconsistency_in(own, k2, membership), std::nullopt) << "not among its own";
  membership.progressed(k1, Progress{ViewId{1}, Step{12}, 0, 0}, kSoon);
  EXPECT_NE(inconsistency_in(stopped_after(11), k1, membership), std::nullopt);
}

}  // namespace
}  // namespace mayfly::elastic
