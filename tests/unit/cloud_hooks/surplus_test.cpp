#include "cloud_hooks/core/surplus.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cloud_hooks/policy_harness.hpp"
#include "tests/unit/cloud_hooks/policy_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

using test_support::PolicyParts;
using test_support::two_zones;

void run_workers(PolicyParts& parts, std::uint64_t count) {
  for (std::uint64_t member = 1; member <= count; ++member) {
    parts.run("s" + std::to_string(member), 0, member);
  }
}

std::size_t drained(PolicyParts& parts) {
  return parts.taken<policy_effect::Drain>().size();
}

TEST(Surplus, IsGivenUpAfterSomePatience) {
  PolicyParts parts(two_zones());
  run_workers(parts, 4);
  parts.surplus.keep_target(parts.now);
  EXPECT_EQ(drained(parts), 0u);
  EXPECT_EQ(parts.surplus.next_wake(), parts.now + parts.options.surplus_patience);
  parts.now = *parts.surplus.next_wake();
  parts.surplus.keep_target(parts.now);
  EXPECT_EQ(drained(parts), 2u);
  parts.surplus.keep_target(parts.now);
  EXPECT_FALSE(parts.surplus.next_wake());
}

TEST(Surplus, IsGivenUpAtOnceIfAnOperatorAskedForFewer) {
  PolicyParts parts(two_zones());
  run_workers(parts, 2);
  parts.demand.set_target(1);
  parts.surplus.scaled(2, 1);
  parts.surplus.keep_target(parts.now);
  EXPECT_EQ(drained(parts), 1u);
}

TEST(Surplus, IsGivenUpAtOnceIfItMayExceedMax) {
  PolicyParts parts(two_zones());
  run_workers(parts, 3);
  parts.request(0, 6);
  parts.surplus.keep_target(parts.now);
  EXPECT_EQ(drained(parts), 1u);
}

TEST(Surplus, KeepsTheHourlyBudgetOrLeavesEverythingIfItCannot) {
  ReplacementOptions options = two_zones();
  options.target = 3;
  options.budget_per_hour = 1.0;
  PolicyParts parts(options);
  run_workers(parts, 3);
  parts.fleet.irreplaceable(MemberId{1});
  parts.fleet.irreplaceable(MemberId{2});
  parts.surplus.keep_hourly_budget(parts.now);
  EXPECT_EQ(drained(parts), 0u) << "it would not be kept all the same";
  parts.fleet.let_go(parts.now, "s1");
  EXPECT_EQ(drained(parts), 1u);
  parts.surplus.keep_hourly_budget(parts.now);
  EXPECT_EQ(drained(parts), 1u) << "what leaves already counts as saved";
}

TEST(Surplus, WhatIsWantedBackIsReplacedFromOtherOffers) {
  PolicyParts parts(two_zones());
  run_workers(parts, 2);
  parts.surplus.give_back(parts.now, 1, "why");
  EXPECT_EQ(drained(parts), 1u);
  EXPECT_EQ(parts.shortage.first_loss(), parts.now);
  EXPECT_EQ(parts.catalog.ranking(parts.now), std::vector<std::size_t>{1});
}

}  // namespace
}  // namespace mayfly::cloud_hooks
