#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/sim/sim_world.hpp"

// MAYFLY_SIM_SEEDS=N runs N seeds instead of 500; MAYFLY_SIM_FIRST_SEED=S starts at S.

namespace mayfly::sim {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string story_of(const Scenario& scenario, const RunResult& result) {
  std::ostringstream text;
  text << describe(scenario) << '\n';
  for (const std::string& violation : result.violations) {
    text << "  violated: " << violation << '\n';
  }
  const std::size_t shown = std::min<std::size_t>(result.history.size(), 40);
  for (std::size_t i = result.history.size() - shown; i < result.history.size(); ++i) {
    text << "  " << result.history[i] << '\n';
  }
  return text.str();
}

TEST(Simulator, EveryScheduleOfFaultsEndsWithTheUndisturbedResult) {
  const std::uint64_t seeds = from_environment("MAYFLY_SIM_SEEDS", 500);
  const std::uint64_t first = from_environment("MAYFLY_SIM_FIRST_SEED", 1);
  RunResult total;
  std::uint64_t failures = 0;
  for (std::uint64_t seed = first; seed < first + seeds && failures < 5; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    const RunResult result = simulate(scenario);
    EXPECT_TRUE(result.violations.empty()) << story_of(scenario, result);
    failures += result.violations.empty() ? 0 : 1;
    total.views += result.views;
    total.losses += result.losses;
    total.joins += result.joins;
    total.leaves += result.leaves;
    total.evictions += result.evictions;
    total.recoveries += result.recoveries;
    total.kept_sums += result.kept_sums;
  }
  RecordProperty("views", std::to_string(total.views));
  std::cout << seeds << " seeds: " << total.views << " views, " << total.losses << " lost, "
            << total.joins << " joined, " << total.leaves << " left, " << total.evictions
            << " evicted, " << total.recoveries << " changes completed, " << total.kept_sums
            << " microbatches kept\n";
}

TEST(Simulator, SeedsThatFailedOnceStayGood) {
  std::ifstream file(MAYFLY_SIM_SEEDS_FILE);
  ASSERT_TRUE(file.is_open()) << MAYFLY_SIM_SEEDS_FILE;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const Scenario scenario = draw_scenario(std::strtoull(line.c_str(), nullptr, 10));
    const RunResult result = simulate(scenario);
    EXPECT_TRUE(result.violations.empty()) << story_of(scenario, result);
  }
}

TEST(Simulator, ASeedAlwaysGivesTheSameRun) {
  for (const std::uint64_t seed : {3, 14, 15}) {
    const RunResult one = simulate(draw_scenario(seed));
    const RunResult other = simulate(draw_scenario(seed));
    EXPECT_EQ(one.history, other.history);
    EXPECT_EQ(one.fingerprint, other.fingerprint);
  }
}

/// The first seed, up to 200, in which the checkers see the sabotage; with what they say.
std::string first_finding(Sabotage sabotage) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Scenario scenario = draw_scenario(seed);
    scenario.sabotage = sabotage;
    const RunResult result = simulate(scenario);
    if (!result.violations.empty()) {
      return result.violations.front();
    }
  }
  return "nothing";
}

TEST(Checkers, FindSumsOfAnOlderStep) {
  EXPECT_THAT(first_finding(Sabotage::kKeepsStaleSums), testing::HasSubstr("another state"));
}

TEST(Checkers, FindAMemberThatRepeatsWorkOthersKept) {
  EXPECT_THAT(first_finding(Sabotage::kIgnoresFirstStep), testing::HasSubstr("microbatch"));
}

TEST(Checkers, FindAReductionWithoutItsLastMember) {
  EXPECT_THAT(first_finding(Sabotage::kReducesTooEarly), testing::HasSubstr("microbatches"));
}

TEST(Checkers, FindAMemberThatDidNotTakeTheState) {
  EXPECT_THAT(first_finding(Sabotage::kSkipsSync), testing::HasSubstr("took another state"));
}

TEST(Checkers, FindAJobThatHangs) {
  EXPECT_THAT(first_finding(Sabotage::kLosesViews), testing::HasSubstr("does not end"));
}

TEST(Checkers, FindViewsThatDoNotGrow) {
  Violations violations;
  ViewChecker checker(violations);
  elastic::View view;
  view.id = ViewId{1};
  checker.on_published(view);
  EXPECT_TRUE(violations.empty());
  checker.on_published(view);
  EXPECT_FALSE(violations.empty());
}

TEST(Checkers, FindAGapInTheCommittedSteps) {
  Violations violations;
  CommitChecker checker(violations, 4);
  checker.on_sync(MemberId{1}, 0, kInitialState);
  checker.on_commit(MemberId{1}, 1, checker.expected(1));
  EXPECT_TRUE(violations.empty());
  checker.on_commit(MemberId{1}, 3, checker.expected(3));
  EXPECT_FALSE(violations.empty());
}

}  // namespace
}  // namespace mayfly::sim
