#include "elastic/core/claims.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"

namespace mayfly::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Witness witness(std::uint64_t id, std::vector<std::uint64_t> hashes, bool independent = true) {
  return {MemberId{id}, std::move(hashes), independent, false};
}

TEST(OddOneOut, IsTheOneThatDiffersFromTwoWhoAgree) {
  const Verdict verdict =
      odd_one_out({witness(1, {5, 6, 7}), witness(2, {5, 9, 8}), witness(3, {5, 6, 7})});
  EXPECT_TRUE(verdict.decided);
  EXPECT_THAT(verdict.odd, ElementsAre(MemberId{2}));
  EXPECT_THAT(verdict.parts, ElementsAre(1, 2));
}

TEST(OddOneOut, OneWordAgainstAnotherDecidesNothing) {
  EXPECT_FALSE(odd_one_out({witness(1, {5}), witness(2, {6})}).decided);
  EXPECT_FALSE(odd_one_out({witness(1, {5})}).decided);
  EXPECT_FALSE(odd_one_out({}).decided);
}

TEST(OddOneOut, TwoWhoAgreeOutweighAnyNumberThatDoNot) {
  const Verdict verdict = odd_one_out(
      {witness(1, {1}), witness(2, {2}), witness(3, {3}), witness(4, {2}), witness(5, {4})});
  EXPECT_TRUE(verdict.decided);
  EXPECT_THAT(verdict.odd, ElementsAre(MemberId{1}, MemberId{3}, MemberId{5}));
}

TEST(OddOneOut, EquallyManyOnTwoSidesDecideNothing) {
  EXPECT_FALSE(
      odd_one_out({witness(1, {1}), witness(2, {1}), witness(3, {2}), witness(4, {2})}).decided);
}

TEST(OddOneOut, WhoCopiedItsStateOnlyRepeatsTheSource) {
  // Member 2 is wrong and member 4 copied its state. If copies counted, they would outvote 1.
  EXPECT_FALSE(odd_one_out({witness(1, {1}), witness(2, {2}), witness(4, {2}, false)}).decided);
  const Verdict verdict =
      odd_one_out({witness(1, {1}), witness(2, {2}), witness(3, {1}), witness(4, {2}, false)});
  EXPECT_TRUE(verdict.decided);
  EXPECT_THAT(verdict.odd, ElementsAre(MemberId{2}, MemberId{4}));
}

TEST(OddOneOut, WhoContradictsItselfIsOdd) {
  Witness unsound = witness(1, {7});
  unsound.contradicts_itself = true;
  const Verdict verdict = odd_one_out({unsound, witness(2, {7})});
  EXPECT_TRUE(verdict.decided);
  EXPECT_THAT(verdict.odd, ElementsAre(MemberId{1}));
  EXPECT_FALSE(odd_one_out({unsound}).decided);
}

TEST(OddOneOut, NobodyIsOddIfAllAgree) {
  const Verdict verdict = odd_one_out({witness(1, {1}), witness(2, {1})});
  EXPECT_TRUE(verdict.decided);
  EXPECT_THAT(verdict.odd, IsEmpty());
}

TEST(OddOneOut, NeverNamesAHealthyMemberWhileTwoAreHealthyAndNoTwoAreWrongAlike) {
  constexpr std::uint64_t kSeed = 5;
  RandomStream random{CounterRandom(kSeed)};
  for (int round = 0; round < 2000; ++round) {
    std::vector<Witness> witnesses;
    std::vector<MemberId> corrupt;
    const std::uint64_t members = 2 + random.below(8);
    const std::uint64_t healthy_first = random.below(members - 1);
    for (std::uint64_t id = 0; id < members; ++id) {
      const bool healthy = id == healthy_first || id == healthy_first + 1 || random.below(2) == 0;
      witnesses.push_back(witness(id, {1, healthy ? 2 : 100 + id, 3}));
      if (!healthy) {
        corrupt.push_back(MemberId{id});
      }
    }
    const Verdict verdict = odd_one_out(witnesses);
    EXPECT_TRUE(verdict.decided);
    EXPECT_EQ(verdict.odd, corrupt);
  }
}

}  // namespace
}  // namespace mayfly::elastic
