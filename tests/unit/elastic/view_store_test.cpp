#include "elastic/core/view_store.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/members.hpp"

namespace mayfly::elastic {
namespace {

TEST(ViewStore, NamesThoseWhoWaitedInTheOrderTheyAsked) {
  ViewStore store;
  bool accepted = false;
  EXPECT_EQ(store.get(k2, "key"), nullptr);
  EXPECT_EQ(store.get(k1, "key"), nullptr);
  EXPECT_EQ(store.set("key", Bytes(2), accepted), (std::vector<MemberId>{k2, k1}));
  EXPECT_TRUE(store.set("key", Bytes(3), accepted).empty()) << "each request is answered once";
  ASSERT_NE(store.get(k1, "key"), nullptr);
  EXPECT_EQ(store.get(k1, "key")->size(), 3u);
}

TEST(ViewStore, RefusesMoreThanItsBoundAndTakesReplacementsIntoAccount) {
  ViewStore store;
  bool accepted = false;
  (void)store.set("a", Bytes(kStoreBytesMax - 1), accepted);
  EXPECT_TRUE(accepted);
  (void)store.set("b", Bytes(1), accepted);
  EXPECT_FALSE(accepted);
  (void)store.set("a", Bytes(1), accepted);
  EXPECT_TRUE(accepted);
  (void)store.set("b", Bytes(1), accepted);
  EXPECT_TRUE(accepted);
}

TEST(ViewStore, HasAllItsRoomAgainInTheNextView) {
  ViewStore store;
  bool accepted = false;
  (void)store.set("a", Bytes(kStoreBytesMax - 1), accepted);
  store.clear();
  (void)store.set("b", Bytes(kStoreBytesMax - 1), accepted);
  EXPECT_TRUE(accepted);
}

TEST(ViewStore, CountsRequestsUntilTheyAreAnswered) {
  ViewStore store;
  bool accepted = false;
  EXPECT_EQ(store.get(k1, "key"), nullptr);
  EXPECT_GT(store.waiting_bytes(k1), 0u);
  (void)store.set("key", Bytes(2), accepted);
  EXPECT_EQ(store.waiting_bytes(k1), 0u);
}

TEST(ViewStore, ForgetsValuesAndRequests) {
  ViewStore store;
  bool accepted = false;
  (void)store.set("a", Bytes(1), accepted);
  EXPECT_EQ(store.get(k1, "b"), nullptr);
  store.clear();
  EXPECT_EQ(store.get(k1, "a"), nullptr);
  EXPECT_TRUE(store.set("b", Bytes(1), accepted).empty());
}

TEST(ViewStore, SaysOnceInAViewThatItIsFull) {
  ViewStore store;
  bool accepted = true;
  (void)store.set("key", Bytes(kStoreBytesMax), accepted);
  EXPECT_FALSE(accepted);
  EXPECT_TRUE(store.is_first_refusal());
  EXPECT_FALSE(store.is_first_refusal());
  store.clear();
  EXPECT_TRUE(store.is_first_refusal());
}

}  // namespace
}  // namespace mayfly::elastic
