#include "elastic/core/view.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string>

#include "base/random.hpp"

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

TEST(MicrobatchSet, IsTheSetOfWhatWasPutIn) {
  constexpr std::uint64_t kSeed = 7;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " round " + std::to_string(round));
    std::array<MicrobatchSet, 2> sets;
    std::array<std::set<std::uint32_t>, 2> models;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::uint64_t n = random.below(8); n > 0; --n) {
        const auto first = static_cast<std::uint32_t>(random.below(40));
        const auto count = static_cast<std::uint32_t>(random.below(6));
        sets[i].add_range(first, count);
        for (std::uint32_t number = first; number < first + count; ++number) {
          models[i].insert(number);
        }
      }
    }
    const auto expect = [](const MicrobatchSet& set, const std::set<std::uint32_t>& model) {
      const std::vector<std::uint32_t> numbers(model.begin(), model.end());
      EXPECT_EQ(set.list(), numbers);
      EXPECT_EQ(set.count(), numbers.size());
      EXPECT_EQ(set.empty(), numbers.empty());
      for (std::uint32_t number = 0; number < 50; ++number) {
        EXPECT_EQ(set.contains(number), model.contains(number));
      }
      MicrobatchSet again;
      for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
        again.add(*number);
      }
      EXPECT_EQ(again, set);
    };
    expect(sets[0], models[0]);
    std::set<std::uint32_t> rest;
    std::ranges::set_difference(models[0], models[1], std::inserter(rest, rest.end()));
    expect(sets[0].minus(sets[1]), rest);
    sets[0].add_all(sets[1]);
    models[0].insert(models[1].begin(), models[1].end());
    expect(sets[0], models[0]);
  }
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
