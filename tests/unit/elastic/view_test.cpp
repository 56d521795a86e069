#include "elastic/core/view.hpp"

#include <gtest/gtest.h>

namespace mayfly::elastic {
namespace {

TEST(MicrobatchSet, ListsWhatWasAddedInAscendingOrder) {
  MicrobatchSet set;
  set.add(130);
  set.add(3);
  set.add(64);
  set.add(3);
  EXPECT_EQ(set.list(), (std::vector<std::uint32_t>{3, 64, 130}));
  EXPECT_EQ(set.count(), 3u);
  EXPECT_TRUE(set.contains(64));
  EXPECT_FALSE(set.contains(65));
  EXPECT_FALSE(set.contains(4095));
}

TEST(MicrobatchSet, RangeHoldsExactlyItsNumbers) {
  EXPECT_TRUE(MicrobatchSet::range(5, 0).empty());
  EXPECT_EQ(MicrobatchSet::range(62, 4).list(), (std::vector<std::uint32_t>{62, 63, 64, 65}));
  EXPECT_EQ(MicrobatchSet::range(0, kMicrobatchesMax).count(), kMicrobatchesMax);
}

TEST(MicrobatchSet, MinusAndUnionUndoEachOther) {
  const MicrobatchSet low = MicrobatchSet::range(0, 70);
  const MicrobatchSet high = MicrobatchSet::range(70, 130);
  MicrobatchSet all = high;
  all.add_all(low);
  EXPECT_EQ(all, MicrobatchSet::range(0, 200));
  EXPECT_EQ(all.minus(high), low);
  EXPECT_EQ(all.minus(low), high);
}

TEST(MicrobatchSet, EqualSetsAreEqualHoweverTheyCameToBe) {
  const MicrobatchSet small = MicrobatchSet::range(0, 200).minus(MicrobatchSet::range(10, 190));
  EXPECT_EQ(small, MicrobatchSet::range(0, 10));
}

TEST(MicrobatchSetDeathTest, ANumberBeyondTheBoundIsAProgrammerError) {
  MicrobatchSet set;
  EXPECT_DEATH(set.add(kMicrobatchesMax), "kMicrobatchesMax");
}

View view_of_four() {
  View view;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    view.members.push_back({MemberId{id}, "", {}, 0, 0, {}});
  }
  return view;
}

TEST(View, TheStateComesFromMembersThatWorkAndHaveIt) {
  View view = view_of_four();
  EXPECT_EQ(donors_of(view), (std::vector<Rank>{Rank{0}, Rank{1}, Rank{2}, Rank{3}}));
  view.behind = {Rank{0}, Rank{2}};
  EXPECT_EQ(donors_of(view), (std::vector<Rank>{Rank{1}, Rank{3}}));
  view.behind = {};
  view.members[1].observes = ViewId{1};
  EXPECT_EQ(donors_of(view), (std::vector<Rank>{Rank{0}, Rank{2}, Rank{3}}));
}

TEST(View, TheFirstMemberThatWorksSpeaksEvenIfItIsBehind) {
  View view = view_of_four();
  view.members[0].observes = ViewId{1};
  EXPECT_EQ(reporter_of(view), Rank{1});
  view.members[0].observes = {};
  view.behind = {Rank{0}};
  EXPECT_EQ(reporter_of(view), Rank{0});
}

}  // namespace
}  // namespace mayfly::elastic
