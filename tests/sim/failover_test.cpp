#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/sim/failover_world.hpp"

// MAYFLY_SIM_SEEDS=N runs N seeds instead of 300; MAYFLY_SIM_FIRST_SEED=S starts at S.

namespace mayfly::sim {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string story_of(const FailoverScenario& scenario, const FailoverResult& result) {
  std::ostringstream text;
  text << describe(scenario) << '\n';
  for (const std::string& violation : result.violations) {
    text << "  violated: " << violation << '\n';
  }
  const std::size_t lines = from_environment("MAYFLY_SIM_LINES", 40);
  const std::size_t shown = std::min(result.history.size(), lines);
  for (std::size_t i = result.history.size() - shown; i < result.history.size(); ++i) {
    text << "  " << result.history[i] << '\n';
  }
  return text.str();
}

TEST(Failover, WhateverHappensToCoordinatorsOneSideGoesOnAndTheJobEnds) {
  const std::uint64_t seeds = from_environment("MAYFLY_SIM_SEEDS", 300);
  const std::uint64_t first = from_environment("MAYFLY_SIM_FIRST_SEED", 1);
  FailoverResult total;
  std::uint64_t failures = 0;
  std::uint64_t done = 0;
  for (std::uint64_t seed = first; seed < first + seeds && failures < 5; ++seed) {
    const FailoverScenario scenario = draw_failover(seed);
    const FailoverResult result = simulate(scenario);
    EXPECT_TRUE(result.violations.empty()) << story_of(scenario, result);
    failures += result.violations.empty() ? 0 : 1;
    done += result.is_done ? 1 : 0;
    total.views += result.views;
    total.crashes += result.crashes;
    total.resumed += result.resumed;
    total.takeovers += result.takeovers;
    total.cuts += result.cuts;
    total.unwritten += result.unwritten;
    total.rejoins += result.rejoins;
  }
  std::cout << seeds << " seeds, " << done << " done: " << total.views << " views, "
            << total.crashes << " coordinators crashed, " << total.resumed << " times in charge, "
            << total.takeovers << " of them standbys, " << total.cuts << " cuts, "
            << total.unwritten << " records did not fit, " << total.rejoins << " rejoined\n";
  EXPECT_GT(total.resumed, seeds / 2);
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
    EXPECT_TRUE(result.violations.empty()) << story_of(scenario, result);
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
  EXPECT_THAT(first_finding(BrokenCore::kForgetsWhenEvicted, 1500),  // it takes many failures
              testing::HasSubstr("obeys incarnation"));
}

TEST(FailoverCheckers, FindAMemberThatObeysAnOldReign) {
  EXPECT_THAT(
      first_finding(BrokenCore::kObeysOldReigns),
      testing::AnyOf(testing::HasSubstr("obeys incarnation"), testing::HasSubstr("does not end")));
}

}  // namespace
}  // namespace mayfly::sim
