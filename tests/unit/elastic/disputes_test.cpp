#include "elastic/core/claims.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

Stopped disputing(Dispute dispute, const std::vector<std::uint64_t>& hashes) {
  Stopped stopped = stopped_after(11);
  stopped.dispute = dispute;
  stopped.hashes = hashes;
  return stopped;
}

TEST(Disputes, ThereIsNoneAmongMembersThatAgree) {
  Membership membership = working({k1, k2});
  membership.stopped(k1, stopped_after(11));
  membership.stopped(k2, stopped_after(11));
  const DisputeVerdict verdict = judge_dispute(membership, {});
  EXPECT_FALSE(verdict.deadlock);
  EXPECT_TRUE(verdict.odd.empty());
}

TEST(Disputes, TheOddOneOutIsNamedWithThePartInWhichItDiffers) {
  Membership membership = working({k1, k2, k3});
  membership.stopped(k1, disputing(Dispute::kState, {1, 2}));
  membership.stopped(k2, disputing(Dispute::kState, {1, 9}));
  membership.stopped(k3, disputing(Dispute::kState, {1, 2}));
  const DisputeVerdict verdict = judge_dispute(membership, {"weights", "momentum"});
  EXPECT_EQ(verdict.odd, std::vector<MemberId>{k2});
  EXPECT_EQ(verdict.reason, "before step 12 its state differed from the others' in momentum");
}

TEST(Disputes, TwoThatDifferCannotGoOn) {
  Membership membership = working({k1, k2});
  membership.stopped(k1, disputing(Dispute::kMicrobatch, {1}));
  membership.stopped(k2, disputing(Dispute::kMicrobatch, {2}));
  EXPECT_EQ(judge_dispute(membership, {}).deadlock,
            "members get different results for a microbatch of step 12, and no two of 2 agree on "
            "what is right");
}

TEST(Disputes, WhoWasCutOffMayStillDecide) {
  Membership membership = working({k1, k2, k3});
  membership.stopped(k1, disputing(Dispute::kState, {1}));
  membership.stopped(k2, disputing(Dispute::kState, {2}));
  membership.stopped(k3, stopped_after(11));
  const DisputeVerdict verdict = judge_dispute(membership, {});
  EXPECT_FALSE(verdict.deadlock);
  EXPECT_TRUE(verdict.odd.empty());
}

}  // namespace
}  // namespace mayfly::elastic
