#include "elastic/core/blame.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/members.hpp"

namespace mayfly::elastic {
namespace {

constexpr MemberId k9{9};

BreakReport blames(MemberId member, MemberId culprit) {
  return {member, true, false, culprit};
}
BreakReport was_told(MemberId member) {
  return {member, false, false, {}};
}

TEST(BlameRecord, TwoBlamersAreEnough) {
  BlameRecord record;
  EXPECT_EQ(record.group_broke(k1, {blames(k1, k3), blames(k2, k3), was_told(k3)}), k3);
}

TEST(BlameRecord, OneThatOnlyLeftBecauseAnotherBrokeIsNotBlamed) {
  BlameRecord record;
  // Member 2 noticed the death of member 9 and closed its connections; 1 and 3 noticed only this.
  EXPECT_EQ(record.group_broke(k1, {blames(k1, k2), blames(k2, k9), blames(k3, k2)}), std::nullopt);
}

TEST(BlameRecord, OneThatFinishedIsNotBlamed) {
  BlameRecord record;
  const BreakReport done{k3, false, true, {}};
  EXPECT_EQ(record.group_broke(k1, {blames(k1, k3), blames(k2, k3), done}), std::nullopt);
}

TEST(BlameRecord, OfTwoThatBlameEachOtherTheLargerIdGoesAfterThreeViews) {
  BlameRecord record;
  for (int view = 0; view < 2; ++view) {
    EXPECT_EQ(record.group_broke(k2, {blames(k1, k2), blames(k2, k1)}), std::nullopt);
  }
  EXPECT_EQ(record.group_broke(k1, {blames(k1, k2), blames(k2, k1)}), k2);
}

TEST(BlameRecord, OfTwoThatBlameEachOtherInTurnsTheLargerIdGoesAfterThreeViews) {
  for (const MemberId begins : {k1, k2}) {
    BlameRecord record;
    const MemberId other = begins == k1 ? k2 : k1;
    EXPECT_EQ(record.group_broke(begins, {blames(begins, other), was_told(other)}), std::nullopt);
    EXPECT_EQ(record.group_broke(other, {blames(other, begins), was_told(begins)}), std::nullopt);
    EXPECT_EQ(record.group_broke(begins, {blames(begins, other), was_told(other)}), k2);
  }
}

// A cut link: in the first view it is noticed during work, in the second one while connecting.
TEST(BlameRecord, PacketsThatStayUnansweredInTwoViewsAreEnough) {
  const auto cannot_reach = [](MemberId member, MemberId culprit) {
    return BreakReport{member, true, false, culprit, true};
  };
  BlameRecord record;
  EXPECT_EQ(record.group_broke(k1, {cannot_reach(k1, k2), was_told(k2)}), std::nullopt);
  EXPECT_EQ(record.group_broke(k1, {cannot_reach(k1, k2), was_told(k2)}), k2);
  EXPECT_EQ(record.group_broke(k2, {was_told(k1), cannot_reach(k2, k1)}), std::nullopt)
      << "a row begins anew";
  EXPECT_EQ(record.group_broke(k1, {cannot_reach(k1, k2), was_told(k2)}), k2) << "the larger id";
  EXPECT_EQ(record.group_broke(k1, {blames(k1, k2), was_told(k2)}), std::nullopt);
  EXPECT_EQ(record.group_broke(k1, {cannot_reach(k1, k2), was_told(k2)}), std::nullopt)
      << "one of the two connections only broke";
}

TEST(BlameRecord, OfTwoThatBlameEachOtherTheOneBlamedByMoreGoes) {
  BlameRecord record;
  EXPECT_EQ(record.group_broke(k2, {blames(k1, k2), blames(k2, k1), blames(k3, k1)}), k1);
}

TEST(BlameRecord, AViewThatEndedOtherwiseBreaksTheRow) {
  BlameRecord record;
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(record.group_broke(k1, {blames(k1, k2), was_told(k2)}), std::nullopt);
    EXPECT_EQ(record.group_broke(k1, {blames(k1, k2), was_told(k2)}), std::nullopt);
    record.view_ended_otherwise();
  }
}

// In each view only the link that is noticed first is reported.
TEST(BlameRecord, TwoBadLinksThatBreakViewsInTurnsAreBothFound) {
  BlameRecord record;
  std::vector<MemberId> gone;
  for (int view = 0; view < 6; ++view) {
    const bool is_first = view % 2 == 0;
    const std::vector<BreakReport> reports =
        is_first ? std::vector{blames(k1, k2), was_told(k2), was_told(k3), was_told(k9)}
                 : std::vector{was_told(k1), was_told(k2), blames(k3, k9), was_told(k9)};
    if (const auto culprit = record.group_broke(is_first ? k1 : k3, reports)) {
      gone.push_back(*culprit);
    }
  }
  EXPECT_EQ(gone, (std::vector<MemberId>{k2, k9}));
}

TEST(BlameRecord, ALinkThatLastedThroughManyBreaksElsewhereIsForgiven) {
  BlameRecord record;
  const std::vector<BreakReport> once = {blames(k1, k2), was_told(k2)};
  EXPECT_EQ(record.group_broke(k1, once), std::nullopt);
  EXPECT_EQ(record.group_broke(k1, once), std::nullopt);
  for (std::uint32_t view = 0; view < 9; ++view) {  // never the same one twice
    const MemberId other{10 + view};
    EXPECT_EQ(
        record.group_broke(k3, {was_told(k1), was_told(k2), blames(k3, other), was_told(other)}),
        std::nullopt);
  }
  EXPECT_EQ(record.group_broke(k1, once), std::nullopt);
}

TEST(BlameRecord, ABreakWithoutACulpritBlamesNobody) {
  BlameRecord record;
  EXPECT_EQ(record.group_broke(k1, {{k1, true, false, {}}, was_told(k2)}), std::nullopt);
}

// The member reports errors falsely, or is itself broken: all of its views end early.
TEST(BlameRecord, WhoseGroupAloneBreaksInThreeViewsGoes) {
  BlameRecord record;
  const BreakReport alone{k2, true, false, {}};
  for (int view = 0; view < 2; ++view) {
    EXPECT_EQ(record.group_broke(k2, {was_told(k1), alone, was_told(k3)}), std::nullopt);
  }
  EXPECT_EQ(record.group_broke(k2, {was_told(k1), alone, was_told(k3)}), k2);
  EXPECT_EQ(record.group_broke(k2, {was_told(k1), alone, was_told(k3)}), std::nullopt);
}

TEST(BlameRecord, WhoBreaksWithOthersOrAfterAnotherIsNotAlone) {
  BlameRecord record;
  const BreakReport one{k1, true, false, {}};
  const BreakReport two{k2, true, false, {}};
  for (int view = 0; view < 9; ++view) {
    EXPECT_EQ(record.group_broke(k2, {one, two, was_told(k3)}), std::nullopt);
    const bool is_first = view % 2 == 0;
    EXPECT_EQ(record.group_broke(is_first ? k1 : k2,
                                 {is_first ? one : was_told(k1), is_first ? was_told(k2) : two}),
              std::nullopt);
  }
}

BreakReport is_cut_off(MemberId member) {
  return blames(member, member);
}

TEST(BlameRecord, WhoIsCutOffByItsOwnWordGoesAtOnce) {
  BlameRecord record;
  EXPECT_EQ(record.group_broke(k2, {was_told(k1), is_cut_off(k2), was_told(k3)}), k2);
}

// If all members are cut off from the same one, the last of them blames it.
TEST(BlameRecord, OfTwoThatAreCutOffTheFirstToSaySoGoes) {
  BlameRecord record;
  EXPECT_EQ(record.group_broke(k1, {is_cut_off(k1), is_cut_off(k2), was_told(k3)}), k1);
  EXPECT_EQ(record.group_broke(k2, {is_cut_off(k2), was_told(k3)}), k2);
}

TEST(BlameRecord, WhoIsCutOffFromNobodyStays) {
  BlameRecord record;
  EXPECT_EQ(record.group_broke(k1, {is_cut_off(k1)}), std::nullopt);
}

}  // namespace
}  // namespace mayfly::elastic
