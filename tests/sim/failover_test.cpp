#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "tests/sim/sweep.hpp"

// MAYFLY_SIM_SEEDS=N runs N seeds instead of 300; MAYFLY_SIM_FIRST_SEED=S starts at S.

namespace mayfly::sim {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Failover, WhateverHappensToCoordinatorsOneSideGoesOnAndTheJobEnds) {
  SweepOptions options;
  options.world = &failover_world();
  options.seeds = from_environment("MAYFLY_SIM_SEEDS", 300);
  options.first_seed = from_environment("MAYFLY_SIM_FIRST_SEED", 1);
  const SweepResult result = sweep(options);
  for (const Outcome& failure : result.first) {
    ADD_FAILURE() << story_of(failure, from_environment("MAYFLY_SIM_LINES", 40));
  }
  EXPECT_EQ(result.failing, 0u);
  std::cout << summary_line(options, result) << '\n';
  const auto resumed = std::find_if(result.counts.begin(), result.counts.end(),
                                    [](const auto& c) { return c.first == "times in charge"; });
  EXPECT_GT(resumed->second, options.seeds / 2);
}

TEST(Failover, SeedsThatFailedOnceStayGood) {
  std::ifstream file(MAYFLY_SIM_SEEDS_FILE);
  ASSERT_TRUE(file.is_open()) << MAYFLY_SIM_SEEDS_FILE;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const FailoverScenario scenario = draw_failover(std::strtoull(line.c_str(), nullptr, 10));
    const FailoverResult result = simulate(scenario);
    EXPECT_TRUE(result.violations.empty()) << story_of(outcome_of(scenario, result), 40);
  }
}

TEST(Failover, ASeedAlwaysGivesTheSameRun) {
  for (const std::uint64_t seed : {2, 7, 19}) {
    EXPECT_EQ(simulate(draw_failover(seed)).history, simulate(draw_failover(seed)).history);
  }
}

/// What the checkers say of the first of 300 seeds in which they see it.
std::string first_finding(BrokenCore broken, std::uint64_t first = 1) {
  for (std::uint64_t seed = first; seed < first + 300; ++seed) {
    FailoverScenario scenario = draw_failover(seed);
    scenario.broken = broken;
    const FailoverResult result = simulate(scenario);
    if (!result.violations.empty()) {
      return result.violations.front();
    }
  }
  return "nothing";
}

TEST(FailoverCheckers, FindAStandbyThatTakesOverAlone) {
  EXPECT_THAT(
      first_finding(BrokenCore::kTakesOverAlone),
      testing::AnyOf(testing::HasSubstr("two sides"), testing::HasSubstr("published twice")));
}

TEST(FailoverCheckers, FindAPrimaryThatIgnoresTheQuorum) {
  EXPECT_THAT(first_finding(BrokenCore::kIgnoresQuorum),
              testing::AnyOf(testing::HasSubstr("two sides"), testing::HasSubstr("two processes")));
}

TEST(FailoverCheckers, FindALogThatBelievesATornRecord) {
  EXPECT_THAT(first_finding(BrokenCore::kBelievesTornLogs), testing::HasSubstr("knows another"));
}

TEST(FailoverCheckers, FindAMemberIdThatIsUsedAgain) {
  EXPECT_THAT(
      first_finding(BrokenCore::kReusesMemberIds),
      testing::AnyOf(testing::HasSubstr("two processes"), testing::HasSubstr("published twice"),
                     testing::HasSubstr("cannot be read")));
}

TEST(FailoverCheckers, FindAnEvictedMemberThatForgetsItsVotes) {
  EXPECT_THAT(first_finding(BrokenCore::kForgetsWhenEvicted, 2700),  // one seed in 800 finds it
              testing::HasSubstr("obeys incarnation"));
}

TEST(FailoverCheckers, FindAMemberThatObeysAnOldReign) {
  EXPECT_THAT(
      first_finding(BrokenCore::kObeysOldReigns),
      testing::AnyOf(testing::HasSubstr("obeys incarnation"), testing::HasSubstr("does not end")));
}

}  // namespace
}  // namespace mayfly::sim
