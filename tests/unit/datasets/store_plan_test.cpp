#include "datasets/core/store_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kPlanned = 70;  // items of 10 bytes each; a second copy takes 4096 bytes

struct Keeps {
  std::vector<std::uint64_t> items;
  std::uint64_t free = 0;
  std::vector<std::uint64_t> second{};  // the items that it keeps as second copies
};

StoreIndex index_of(const Keeps& host) {
  StoreIndex index;
  index.kept.resize(StoreIndex::words(kPlanned));
  index.second.resize(StoreIndex::words(kPlanned));
  index.free = host.free;
  index.spare = 4096 * host.second.size();
  for (const std::uint64_t item : host.items) {
    index.kept[item / 64] |= std::uint64_t{1} << (item % 64);
  }
  for (const std::uint64_t item : host.second) {
    index.kept[item / 64] |= std::uint64_t{1} << (item % 64);
    index.second[item / 64] |= std::uint64_t{1} << (item % 64);
  }
  return index;
}

StorePlan plan_of(const std::vector<Keeps>& hosts, std::size_t self,
                  const std::vector<Keeps>& leavers = {}, std::uint64_t bytes_max = 1'000'000,
                  std::size_t newcomers = 0) {
  const std::vector<std::uint32_t> sizes(kPlanned, 10);
  std::vector<StoreIndex> indexes;
  for (const auto* all : {&hosts, &leavers}) {
    std::ranges::transform(*all, std::back_inserter(indexes), index_of);
  }
  std::vector<const StoreIndex*> pointers;
  for (const StoreIndex& index : indexes) {
    pointers.push_back(&index);
  }
  return plan_copies(
      {.sizes = sizes,
       .hosts = std::span(pointers).first(hosts.size()),
       .self = self,
       .leavers = std::span(pointers).subspan(hosts.size()),
       .reaches = [&](std::size_t host, std::size_t) { return host + newcomers < hosts.size(); },
       .next_use = [](std::uint64_t item) { return 100 - item; }},
      bytes_max);
}

using Pulls = std::vector<StorePull>;

std::vector<std::uint64_t> from_to(std::uint64_t first, std::uint64_t last) {
  std::vector<std::uint64_t> items;
  for (std::uint64_t item = first; item < last; ++item) {
    items.push_back(item);
  }
  return items;
}

TEST(StoreIndex, HasABitForEachItem) {
  const StoreIndex index = index_of({.items = {0, 5, 64, 69}});
  EXPECT_TRUE(index.keeps(0) && index.keeps(64) && index.keeps(69));
  EXPECT_FALSE(index.keeps(1) || index.keeps(63) || index.keeps(1000) || index.keeps_second(0));
}

TEST(StorePlan, WhatOnlyALeaverKeepsIsTakenOverOnceThatUsedFirstInFront) {
  const std::vector<Keeps> hosts = {{{1}, 500}, {{2}, 500}};
  const std::vector<Keeps> leavers = {{.items = {1, 2, 8, 9, 66, 69}}};
  EXPECT_EQ(plan_of(hosts, 0, leavers).pulls, (Pulls{{66, 0}, {8, 0}}));
  EXPECT_EQ(plan_of(hosts, 1, leavers).pulls, (Pulls{{69, 0}, {9, 0}}));
  EXPECT_TRUE(plan_of(hosts, 0, leavers).needs_leavers);
  EXPECT_EQ(plan_of(hosts, 0, leavers, 15).pulls, (Pulls{{66, 0}}));
}

TEST(StorePlan, AHostWithoutRoomLeavesItsShareToOthers) {
  const std::vector<Keeps> hosts = {{{}, 9}, {{}, 25}, {{}, 500}};
  const std::vector<Keeps> leavers = {{.items = {0, 1, 2, 3, 4, 6, 7}}};
  EXPECT_TRUE(plan_of(hosts, 0, leavers).pulls.empty());
  EXPECT_TRUE(plan_of(hosts, 0, leavers).needs_leavers);
  // The shares of the first host (0, 3 and 6) and of the second one (1, 4 and 7) fall to the second
  // host, which has room for two items.
  EXPECT_EQ(plan_of(hosts, 1, leavers).pulls, (Pulls{{7, 0}, {6, 0}}));
  EXPECT_EQ(plan_of(hosts, 2, leavers).pulls, (Pulls{{2, 0}}));
}

TEST(StorePlan, AHostThatHasJoinedSinceLeavesItsShareToOthers) {
  const std::vector<Keeps> hosts = {{{}, 500}, {{}, 500}};
  const std::vector<Keeps> leavers = {{.items = {2, 3}}};
  EXPECT_EQ(plan_of(hosts, 0, leavers).pulls, (Pulls{{2, 0}}));
  EXPECT_EQ(plan_of(hosts, 0, leavers, 1'000'000, 1).pulls, (Pulls{{3, 0}, {2, 0}}));
}

TEST(StorePlan, SecondCopiesMakeRoomForWhatLeaversKeep) {
  const std::vector<Keeps> hosts = {{{1}, 0, {2}}, {{2}, 0}};
  EXPECT_EQ(plan_of(hosts, 0, {{.items = {5, 6}}}).pulls, (Pulls{{6, 0}, {5, 0}}));
}

TEST(StorePlan, WhatFitsNowhereIsNobodysShare) {
  const StorePlan plan = plan_of({{{}, 9}, {{}, 0}}, 1, {{.items = {5}}});
  EXPECT_TRUE(plan.pulls.empty());
  EXPECT_FALSE(plan.needs_leavers);
}

TEST(StorePlan, OfTwoLeaversWithTheSameItemsEachIsAskedForSome) {
  EXPECT_EQ(plan_of({{{}, 100}}, 0, {{.items = {3, 4}}, {.items = {3, 4}}}).pulls,
            (Pulls{{4, 0}, {3, 1}}));
}

TEST(StorePlan, SpareRoomHoldsSecondCopiesEachOnOneHost) {
  // The first host keeps items 0 to 4, and the last one keeps items 5 to 69. Items 0 and 1 have
  // second copies on the second host.
  std::vector<Keeps> hosts = {{from_to(0, 5), 1 << 20}, {{}, 1 << 20, {0, 1}}, {from_to(5, 70), 0}};
  hosts[1].free = 4096 * 40;
  std::vector<int> copies(kPlanned, 0);
  for (const std::size_t self : {0U, 1U, 2U}) {
    for (const StorePull& pull : plan_of(hosts, self).pulls) {
      EXPECT_TRUE(pull.is_second);
      EXPECT_EQ(pull.from, pull.item < 5 ? 0U : 2U);
      EXPECT_NE(pull.from, self);
      copies[pull.item] += 1;
    }
  }
  for (std::uint64_t item = 0; item < kPlanned; ++item) {
    EXPECT_EQ(copies[item], item < 2 ? 0 : 1) << item;
  }
  hosts[1].free = 4096 * 3 + 4095;
  EXPECT_EQ(plan_of(hosts, 1).pulls.size(), 3U) << "as many as there is room for";
}

TEST(StorePlan, WhileAnItemIsMissingTheRoomIsForThat) {
  EXPECT_TRUE(plan_of({{from_to(0, 69), 0}, {{}, 1 << 20}}, 1).pulls.empty());
  EXPECT_EQ(plan_of({{from_to(0, 70), 0}, {{}, 1 << 20}}, 1).pulls.size(), 70U);
}

TEST(StorePlan, ASecondCopyThatNoOtherHostKeepsIsAFirstOne) {
  EXPECT_TRUE(plan_of({{{3}, 0}, {{}, 0, {3}}}, 1).first.empty());
  EXPECT_EQ(plan_of({{{}, 0}, {{}, 0, {3}}}, 1).first, (std::vector<std::uint64_t>{3}));
  // A copy of a leaver does not count. If two hosts have second copies, only one of them becomes
  // the first copy.
  EXPECT_EQ(plan_of({{{}, 0}, {{}, 0, {3}}}, 1, {{.items = {3}}}).first,
            (std::vector<std::uint64_t>{3}));
  EXPECT_EQ(plan_of({{{}, 0, {3}}, {{}, 0, {3}}}, 0).first, (std::vector<std::uint64_t>{3}));
  EXPECT_TRUE(plan_of({{{}, 0, {3}}, {{}, 0, {3}}}, 1).first.empty());
}

}  // namespace
}  // namespace mayfly::datasets
