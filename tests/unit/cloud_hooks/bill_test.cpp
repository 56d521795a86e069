#include "cloud_hooks/core/bill.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {
namespace {

TEST(RequestId, HasTheFormOfAUuidAndDiffers) {
  const CounterRandom random(5);
  EXPECT_THAT(
      make_request_id(random, 0),
      testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(make_request_id(random, 0), make_request_id(random, 1));
  EXPECT_NE(make_request_id(random, 0), make_request_id(CounterRandom(6), 0));
}

TEST(Bill, CountsAtLeastAMinuteAndDropsWhatNeverWas) {
  Bill bill(10, seconds(60));
  bill.open("a", 60, Instant{});
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(1)), 11);
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(120)), 12);
  EXPECT_DOUBLE_EQ(bill.per_hour(), 60);
  bill.open("b", 60, Instant{});
  bill.drop("b");
  EXPECT_DOUBLE_EQ(bill.close("a", Instant{} + seconds(180)), 3);
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(999)), 13);
  EXPECT_DOUBLE_EQ(bill.close("a", Instant{}), 0);
}

TEST(Bill, ANewPriceCountsFromItsTimeOn) {
  Bill bill(0, seconds(60));
  bill.open("a", 60, Instant{});
  bill.reprice("a", 120, Instant{} + seconds(600));
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(600)), 10);
  EXPECT_DOUBLE_EQ(bill.per_hour(), 120);
  bill.reprice("a", 240, Instant{} + seconds(660));
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(720)), 10 + 2 + 4);
  bill.reprice("unknown", 1, Instant{});
  EXPECT_DOUBLE_EQ(bill.close("a", Instant{} + seconds(720)), 16);
}

TEST(Bill, APriceThatCountsFromTheBeginningReplacesAnEstimate) {
  Bill bill(0, seconds(60));
  bill.open("a", 60, Instant{} + seconds(5));
  bill.reprice("a", 120, Instant{});
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(605)), 20);
}

TEST(Bill, TheRestOfTheLeastTimeHasTheNewPrice) {
  Bill bill(0, seconds(60));
  bill.open("a", 60, Instant{});
  bill.reprice("a", 120, Instant{} + seconds(30));
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(30)), 0.5 + 1);
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(90)), 0.5 + 2);
}

TEST(Bill, WhatNobodySawCountsForAsLongAsItMayHaveExisted) {
  Bill bill(0, seconds(60));
  bill.open("unseen", 60, Instant{});
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(600)), 10) << "for all we know it exists";
  EXPECT_DOUBLE_EQ(bill.close_unseen("unseen", seconds(5)), 1) << "the least that is billed";
  EXPECT_DOUBLE_EQ(bill.spent(Instant{} + seconds(600)), 1);
  EXPECT_DOUBLE_EQ(bill.close_unseen("unseen", seconds(5)), 0);
  bill.open("longer", 60, Instant{});
  EXPECT_DOUBLE_EQ(bill.close_unseen("longer", seconds(120)), 2);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
