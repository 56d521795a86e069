#include "observe/core/step_differences.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace mayfly::observe {
namespace {

CellRound on_one_host(double a, double b, double c, double d, double e) {
  return {{Cell::kAlone, a},
          {Cell::kTogether, b},
          {Cell::kExchange, c},
          {Cell::kWarm, d},
          {Cell::kWhole, e}};
}

TEST(StepDifferences, AreThoseOfTheCellsAndAddUpToTheLastOne) {
  const std::vector<CellRound> rounds(5, on_one_host(10, 12, 15, 21, 31));
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
  EXPECT_DOUBLE_EQ(sum, mean_of(rounds, Cell::kWhole));
}

TEST(StepDifferences, HaveStudentsIntervalOfPairs) {
  // The machine is twice as slow in the second round; the differences are 2 and 4.
  const std::vector<CellRound> rounds = {on_one_host(10, 12, 12, 12, 12),
                                         on_one_host(20, 24, 24, 24, 24)};
  const StepDifference contention = step_differences(rounds)[1];
  EXPECT_DOUBLE_EQ(contention.ms, 3);
  EXPECT_NEAR(contention.high - contention.ms, 12.7062, 1e-3) << "one degree of freedom";
  EXPECT_FALSE(contention.is_measurable());
  const std::vector<CellRound> three = {on_one_host(10, 12, 12, 12, 12),
                                        on_one_host(20, 22, 22, 22, 22),
                                        on_one_host(10, 12.3, 12.3, 12.3, 12.3)};
  const StepDifference paired = step_differences(three)[1];
  EXPECT_NEAR(paired.high - paired.ms, 4.302653 * std::sqrt(0.03 / 3), 1e-6);
  EXPECT_TRUE(paired.is_measurable()) << "although the cells themselves differ much more";
}

TEST(StepDifferences, WhatIsNotAboveZeroBeyondChanceIsNotMeasurable) {
  const std::vector<CellRound> faster(4, on_one_host(10, 9, 9, 9, 9));
  EXPECT_FALSE(step_differences(faster)[1].is_measurable());
  EXPECT_FALSE(step_differences(faster)[2].is_measurable()) << "exactly 0";
  const std::vector<CellRound> once = {on_one_host(10, 20, 30, 40, 50)};
  const StepDifference one = step_differences(once)[1];
  EXPECT_DOUBLE_EQ(one.ms, 10);
  EXPECT_FALSE(one.is_measurable()) << "one round says nothing about chance";
}

TEST(StepDifferences, OtherToolsReportTheirOwnNumbers) {
  const std::vector<CellRound> rounds(3, on_one_host(10, 12, 16, 20, 100));
  const OtherTools tools = as_other_tools(rounds, 64);
  EXPECT_DOUBLE_EQ(tools.stash_interconnect_ms, 6);
  EXPECT_DOUBLE_EQ(tools.stash_interconnect_share, 0.375);
  EXPECT_FALSE(tools.stash_network_ms) << "there is one host";
  const AnalyzerRates rates = tools.analyzer.value();
  EXPECT_DOUBLE_EQ(rates.ingestion, 4000);
  EXPECT_DOUBLE_EQ(rates.preparation, 3200);
  EXPECT_DOUBLE_EQ(rates.fetch.value(), 800);
  EXPECT_DOUBLE_EQ(rates.speed, 800);
  const std::vector<CellRound> memory(3, on_one_host(10, 10, 8, 8, 8));
  EXPECT_DOUBLE_EQ(as_other_tools(memory, 64).stash_interconnect_ms, 0) << "never negative";
  EXPECT_FALSE(as_other_tools(memory, 64).analyzer.value().fetch);
}

TEST(StepDifferences, OverHostsTheNetworkIsAPartAndDataAreOne) {
  const std::vector<CellRound> rounds(3, CellRound{{Cell::kAlone, 10},
                                                   {Cell::kTogether, 12},
                                                   {Cell::kExchange, 16},
                                                   {Cell::kHosts, 24},
                                                   {Cell::kWhole, 30}});
  const std::vector<StepDifference> parts = step_differences(rounds);
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_STREQ(parts[3].kind, "network");
  EXPECT_DOUBLE_EQ(parts[3].ms, 8);
  EXPECT_STREQ(parts[4].kind, "data");
  EXPECT_DOUBLE_EQ(parts[4].ms, 6);
  const OtherTools tools = as_other_tools(rounds, 64);
  EXPECT_DOUBLE_EQ(tools.stash_network_ms.value(), 8);
  EXPECT_DOUBLE_EQ(tools.stash_network_share, 0.5);
  EXPECT_FALSE(tools.analyzer) << "the files of other hosts cannot be dropped from their caches";
  const std::vector<CellRound> better(3, CellRound{{Cell::kAlone, 10},
                                                   {Cell::kTogether, 20},
                                                   {Cell::kExchange, 22},
                                                   {Cell::kHosts, 15},
                                                   {Cell::kWhole, 15}});
  EXPECT_DOUBLE_EQ(as_other_tools(better, 64).stash_network_ms.value(), 0) << "never negative";
  EXPECT_FALSE(step_differences(better)[3].is_measurable());
}

}  // namespace
}  // namespace mayfly::observe
