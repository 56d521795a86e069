#include "observe/core/step_differences.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace mayfly::observe {
namespace {

TEST(StepDifferences, AreThoseOfTheCellsAndAddUpToTheLastOne) {
  const std::vector<CellRound> rounds(5, CellRound{10, 12, 15, 21, 31});
  const std::vector<StepDifference> parts = step_differences(rounds);
  ASSERT_EQ(parts.size(), 5U);
  double sum = 0;
  for (const auto& [index, kind, ms] :
       {std::tuple(0U, "compute", 10.0), std::tuple(1U, "contention", 2.0),
        std::tuple(2U, "interconnect", 3.0), std::tuple(3U, "prep", 6.0),
        std::tuple(4U, "fetch", 10.0)}) {
    EXPECT_STREQ(parts[index].kind, kind);
    EXPECT_DOUBLE_EQ(parts[index].ms, ms);
    EXPECT_DOUBLE_EQ(parts[index].low, ms) << "rounds that are all the same leave no doubt";
    EXPECT_TRUE(parts[index].is_measurable());
    sum += parts[index].ms;
  }
  EXPECT_DOUBLE_EQ(sum, mean_of(rounds, Cell::kCold));
}

TEST(StepDifferences, HaveStudentsIntervalOfPairs) {
  // The machine is twice as slow in the second round; the differences are 2 and 4.
  const std::vector<CellRound> rounds = {{10, 12, 12, 12, 12}, {20, 24, 24, 24, 24}};
  const StepDifference contention = step_differences(rounds)[1];
  EXPECT_DOUBLE_EQ(contention.ms, 3);
  EXPECT_NEAR(contention.high - contention.ms, 12.7062, 1e-3) << "one degree of freedom";
  EXPECT_FALSE(contention.is_measurable());
  const std::vector<CellRound> three = {
      {10, 12, 12, 12, 12}, {20, 22, 22, 22, 22}, {10, 12.3, 12.3, 12.3, 12.3}};
  const StepDifference paired = step_differences(three)[1];
  EXPECT_NEAR(paired.high - paired.ms, 4.302653 * std::sqrt(0.03 / 3), 1e-6);
  EXPECT_TRUE(paired.is_measurable()) << "although the cells themselves differ much more";
}

TEST(StepDifferences, WhatIsNotAboveZeroBeyondChanceIsNotMeasurable) {
  const std::vector<CellRound> faster(4, CellRound{10, 9, 9, 9, 9});
  EXPECT_FALSE(step_differences(faster)[1].is_measurable());
  EXPECT_FALSE(step_differences(faster)[2].is_measurable()) << "exactly 0";
  const std::vector<CellRound> once = {{10, 20, 30, 40, 50}};
  const StepDifference one = step_differences(once)[1];
  EXPECT_DOUBLE_EQ(one.ms, 10);
  EXPECT_FALSE(one.is_measurable()) << "one round says nothing about chance";
}

TEST(StepDifferences, OtherToolsReportTheirOwnNumbers) {
  const std::vector<CellRound> rounds(3, CellRound{10, 12, 16, 20, 100});
  const OtherTools tools = as_other_tools(rounds, 64);
  EXPECT_DOUBLE_EQ(tools.stash_interconnect_ms, 6);
  EXPECT_DOUBLE_EQ(tools.stash_interconnect_share, 0.375);
  EXPECT_DOUBLE_EQ(tools.dsa_ingestion, 4000);
  EXPECT_DOUBLE_EQ(tools.dsa_preparation, 3200);
  EXPECT_DOUBLE_EQ(tools.dsa_fetch.value(), 800);
  EXPECT_DOUBLE_EQ(tools.dsa_speed, 800);
  const std::vector<CellRound> memory(3, CellRound{10, 10, 8, 8, 8});
  EXPECT_DOUBLE_EQ(as_other_tools(memory, 64).stash_interconnect_ms, 0) << "never negative";
  EXPECT_FALSE(as_other_tools(memory, 64).dsa_fetch);
}

}  // namespace
}  // namespace mayfly::observe
