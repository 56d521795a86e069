#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "tests/sim/sweep.hpp"

// Tests of the world's checkers. worlds_test.cpp checks for many seeds that the world keeps its
// promises.

namespace mayfly::sim {
namespace {

TEST(Failover, CoordinatorsTakeChargeInMostJobs) {
  SweepOptions options;
  options.world = &failover_world();
  options.seeds = 300;
  const SweepResult result = sweep(options);
  const std::map<std::string, std::uint64_t> counts(result.counts.begin(), result.counts.end());
  EXPECT_GT(counts.at("times in charge"), options.seeds / 2);
  EXPECT_GT(counts.at("suspensions"), options.seeds / 10);
  EXPECT_GT(counts.at("stopped"), options.seeds / 30);
  EXPECT_GT(counts.at("copies received"), options.seeds / 10);
  EXPECT_GT(counts.at("copies continued"), options.seeds / 30);
}

TEST(Failover, SeedsThatFailedOnceStayGood) {
  std::ifstream file(MAYFLY_SIM_SEEDS_FILE);
  ASSERT_TRUE(file.is_open()) << MAYFLY_SIM_SEEDS_FILE;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const std::uint64_t seed = std::strtoull(line.c_str(), nullptr, 10);
    for (const FailoverScenario& scenario : {draw_first_failover(seed), draw_failover(seed)}) {
      const FailoverResult result = simulate(scenario);
      EXPECT_TRUE(result.violations.empty()) << story_of(outcome_of(scenario, result), 40);
    }
  }
}

TEST(Failover, ASeedAlwaysGivesTheSameRun) {
  for (const std::uint64_t seed : {2, 7, 19}) {
    EXPECT_EQ(simulate(draw_failover(seed)).history, simulate(draw_failover(seed)).history);
  }
}

/// The finding of the checkers in the first of 300 seeds in which they detect the defect.
std::string first_finding(BrokenCore broken, std::uint64_t first = 1,
                          void (*change)(FailoverScenario&) = nullptr) {
  for (std::uint64_t seed = first; seed < first + 300; ++seed) {
    FailoverScenario scenario = draw_first_failover(seed);
    scenario.broken = broken;
    if (change != nullptr) {
      change(scenario);
    }
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

TEST(FailoverCheckers, FindAJobThatGoesOnThoughItIsPaused) {
  const auto with_long_pauses = [](FailoverScenario& scenario) {  // longer than coordinators live
    scenario.standbys = 0;
    scenario.cut_every = scenario.disk_full_every = Duration::zero();
    scenario.loses_log_tails = false;
    scenario.pause_every = seconds(1);
    scenario.pause_max = seconds(8);
  };
  EXPECT_EQ(first_finding(BrokenCore::kNone, 1, with_long_pauses), "nothing");
  EXPECT_THAT(first_finding(BrokenCore::kForgetsPauses, 1, with_long_pauses),
              testing::HasSubstr("is paused"));
}

TEST(FailoverCheckers, FindAJobThatIsGivenUpTooEarly) {
  EXPECT_THAT(first_finding(BrokenCore::kGivesUpEarly),
              testing::HasSubstr("given up for want of members"));
}

TEST(FailoverCheckers, FindAViewAfterTheEndOnRecord) {
  const auto with_many_ends = [](FailoverScenario& scenario) {  // short jobs with many crashes
    scenario.standbys = 0;
    scenario.cut_every = scenario.disk_full_every = Duration::zero();
    scenario.loses_log_tails = false;
    scenario.workers = 6;
    scenario.steps = 20;
    scenario.coordinator_crash_every = milliseconds(100);
    scenario.down_max = milliseconds(200);
  };
  EXPECT_EQ(first_finding(BrokenCore::kNone, 1, with_many_ends), "nothing");
  EXPECT_THAT(first_finding(BrokenCore::kForgetsTheEnd, 1, with_many_ends),
              testing::HasSubstr("end is on record"));
}

TEST(FailoverCheckers, FindACommitThatIsUndone) {
  const auto where_all_come_back = [](FailoverScenario& scenario) {
    scenario.cut_every = scenario.disk_full_every = Duration::zero();
    scenario.resume_timeout = seconds(2);
  };
  EXPECT_EQ(first_finding(BrokenCore::kNone, 1, where_all_come_back), "nothing");
  // In half of the seeds the first finding is that a job ends too early because of this defect.
  EXPECT_THAT(first_finding(BrokenCore::kForgetsCommits, 11, where_all_come_back),
              testing::HasSubstr("undoes step"));
}

TEST(FailoverCheckers, FindAMemberThatObeysAnOldIncarnation) {
  EXPECT_THAT(
      first_finding(BrokenCore::kObeysOldIncarnations),
      testing::AnyOf(testing::HasSubstr("obeys incarnation"), testing::HasSubstr("does not end")));
}

}  // namespace
}  // namespace mayfly::sim
