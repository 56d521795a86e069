#include "cloud_hooks/core/shortage.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

constexpr Duration kGather = milliseconds(20);
constexpr Instant kFirst{1'000'000'000'000};

TEST(Shortage, IsGatheredAtOnceIfNothingWasLost) {
  Shortage shortage(kGather);
  EXPECT_TRUE(shortage.is_gathered(kFirst));
  EXPECT_FALSE(shortage.first_loss());
}

TEST(Shortage, GathersFromTheFirstLossOn) {
  Shortage shortage(kGather);
  shortage.noticed(kFirst);
  EXPECT_FALSE(shortage.is_gathered(kFirst));
  shortage.noticed(kFirst + milliseconds(19));
  EXPECT_EQ(shortage.first_loss(), kFirst);
  EXPECT_EQ(shortage.gathered_at(), kFirst + kGather);
  EXPECT_FALSE(shortage.is_gathered(kFirst + milliseconds(19)));
  EXPECT_TRUE(shortage.is_gathered(kFirst + kGather));
}

TEST(Shortage, BeginsAnewWhenItIsOver) {
  Shortage shortage(kGather);
  shortage.noticed(kFirst);
  shortage.lost_worker_of(3);
  EXPECT_TRUE(shortage.is_gathered(kFirst + kGather));
  EXPECT_EQ(shortage.lost().at(3), 1u);
  shortage.over();
  EXPECT_FALSE(shortage.first_loss());
  EXPECT_FALSE(shortage.gathered_at());
  EXPECT_TRUE(shortage.lost().empty());
  shortage.noticed(kFirst + seconds(9));
  EXPECT_FALSE(shortage.is_gathered(kFirst + seconds(9)));
}

TEST(Shortage, KeepsTheFirstLossUntilAllIsRequested) {
  Shortage shortage(kGather);
  shortage.noticed(kFirst);
  shortage.lost_worker_of(3);
  shortage.some_requested();
  EXPECT_TRUE(shortage.lost().empty()) << "they count for one burst only";
  EXPECT_EQ(shortage.first_loss(), kFirst);
  shortage.all_requested();
  EXPECT_FALSE(shortage.first_loss());
}

TEST(Shortage, IsToldOnceUntilSomethingHasChanged) {
  Shortage shortage(kGather);
  EXPECT_TRUE(shortage.may_report());
  EXPECT_FALSE(shortage.may_report());
  shortage.changed();
  EXPECT_TRUE(shortage.may_report());
  shortage.over();
  EXPECT_TRUE(shortage.may_report());
}

}  // namespace
}  // namespace mayfly::cloud_hooks
