#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/sim/sweep.hpp"

// Tests of the world's checkers. worlds_test.cpp checks for many seeds that the world keeps its
// promises.

namespace mayfly::sim {
namespace {

TEST(Simulator, ASweepIsTheSameOnAnyNumberOfThreads) {
  SweepOptions options;
  options.seeds = 50;
  const std::string one = summary_line(options, sweep(options));
  options.threads = 3;
  EXPECT_EQ(summary_line(options, sweep(options)), one);
}

TEST(Simulator, ASweepKeepsTheLowestFailingSeedsAndSaysHowToReplayThem) {
  SweepOptions options;
  options.seeds = 40;
  options.failures_kept = 2;
  options.threads = 2;
  options.sabotage = "reduces-too-early";
  const SweepResult result = sweep(options);
  ASSERT_EQ(result.first.size(), 2u);
  EXPECT_GT(result.failing, 2u);
  EXPECT_LT(result.first[0].seed, result.first[1].seed);
  EXPECT_THAT(
      story_of(result.first[0], 10),
      testing::HasSubstr("mayfly simulate --replay " + std::to_string(result.first[0].seed) +
                         " --sabotage reduces-too-early"));
}

TEST(Simulator, SeedsThatFailedOnceStayGood) {
  std::ifstream file(MAYFLY_SIM_SEEDS_FILE);
  ASSERT_TRUE(file.is_open()) << MAYFLY_SIM_SEEDS_FILE;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const std::uint64_t seed = std::strtoull(line.c_str(), nullptr, 10);
    for (const Scenario& scenario : {draw_first_scenario(seed), draw_scenario(seed)}) {
      const RunResult result = simulate(scenario);
      EXPECT_TRUE(result.violations.empty()) << story_of(outcome_of(scenario, result), 40);
    }
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

/// The finding of the checkers in the first seed, up to 200, in which they detect the sabotage.
std::string first_finding(Sabotage sabotage, void (*change)(Scenario&) = nullptr) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Scenario scenario = draw_first_scenario(seed);
    scenario.sabotage = sabotage;
    if (change != nullptr) {
      change(scenario);
    }
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

TEST(Checkers, FindWorkThatWasBegunOnOldWeights) {
  EXPECT_THAT(first_finding(Sabotage::kWorksOnOldWeights), testing::HasSubstr("another state"));
}

TEST(Checkers, FindAMemberThatRepeatsWorkOthersKept) {
  EXPECT_THAT(first_finding(Sabotage::kIgnoresFirstStep), testing::HasSubstr("microbatch"));
}

TEST(Checkers, FindAReductionWithoutItsLastMember) {
  EXPECT_THAT(
      first_finding(Sabotage::kReducesTooEarly),
      testing::AnyOf(testing::HasSubstr("microbatches"), testing::HasSubstr("another state")));
}

TEST(Checkers, FindAMemberThatDidNotTakeTheState) {
  EXPECT_THAT(first_finding(Sabotage::kSkipsSync), testing::HasSubstr("took another state"));
}

TEST(Checkers, FindAnObserverThatLeavesOutAStep) {
  EXPECT_THAT(first_finding(Sabotage::kSkipsAnObservedSum), testing::HasSubstr("another state"));
}

TEST(Checkers, FindAJobThatHangs) {
  EXPECT_THAT(first_finding(Sabotage::kLosesViews), testing::HasSubstr("does not end"));
}

TEST(Checkers, FindMembersThatGoOnWithDifferentStates) {
  EXPECT_THAT(first_finding(Sabotage::kIgnoresDifferences),
              testing::AnyOf(testing::HasSubstr("wrong for too many steps"),
                             testing::HasSubstr("another state")));
}

TEST(Simulator, FlippedBitsAloneNeverEndAJobOfManyMembersNorCostAHealthyOne) {
  std::uint64_t expelled = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Scenario scenario = draw_scenario(seed);
    scenario.faults = {};
    scenario.faults.corrupt_every = milliseconds(1500);
    scenario.state_bytes = seed % 2;  // joining workers observe first, or do not
    scenario.initial_workers = 6;
    scenario.min_workers = 1;
    scenario.view_max = elastic::kMembersMax;
    const RunResult result = simulate(scenario);
    EXPECT_TRUE(result.violations.empty()) << story_of(outcome_of(scenario, result), 40);
    EXPECT_EQ(result.failed, 0U) << story_of(outcome_of(scenario, result), 40);
    expelled += result.expelled;
  }
  EXPECT_GT(expelled, 60U);
}

TEST(Checkers, FindAMemberThatStopsBeforeItsGroupHasLetGo) {
  EXPECT_THAT(first_finding(Sabotage::kStopsBeforeCancelling), testing::HasSubstr("buffers"));
}

TEST(Checkers, FindACoordinatorThatTakesWaitingForAProcessorForSilence) {
  EXPECT_THAT(first_finding(Sabotage::kForgetsToProbe),
              testing::HasSubstr("although its machine answers"));
}

TEST(Checkers, FindAnObserverThatBelievesWhatComes) {
  const auto copies_with_wrong_bits = [](Scenario& scenario) {  // else it takes about 400 seeds
    scenario.faults = {};
    scenario.faults.corrupt_every = milliseconds(200);
    scenario.faults.join_every = milliseconds(100);
    scenario.faults.drain_every = milliseconds(150);
    scenario.initial_workers = 5;
    scenario.view_max = elastic::kMembersMax;
    scenario.state_bytes = 1;
  };
  EXPECT_THAT(
      first_finding(Sabotage::kBelievesCopies, copies_with_wrong_bits),
      testing::AnyOf(testing::HasSubstr("another state"), testing::HasSubstr("was expelled")));
  EXPECT_EQ(first_finding(Sabotage::kNone, copies_with_wrong_bits), "nothing");
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

TEST(Checkers, FindWorkThatIsSharedOutAgainAndAgain) {
  Violations violations;
  RebalanceChecker checker(violations);
  checker.on_view();
  checker.on_speed_change();
  for (int i = 0; i < 9; ++i) {
    checker.on_rebalance();
    checker.on_view();
  }
  EXPECT_TRUE(violations.empty());
  checker.on_rebalance();
  EXPECT_FALSE(violations.empty());
}

TEST(Checkers, FindAnEvictionThatNothingExplains) {
  Violations violations;
  EvictionChecker checker(violations);
  const std::string ahead = "says that it has committed step 9, while the others are at step 4";
  checker.on_evicted(MemberId{1}, "it is cut off: reset", {.links_broke = true});
  checker.on_evicted(MemberId{1}, "did not leave the group within 2000 ms", {.stood_still = true});
  checker.on_evicted(MemberId{1}, "the job continued without it", {.was_unheard = true});
  checker.on_evicted(MemberId{1}, ahead, {.brought_state = true});
  EXPECT_TRUE(violations.empty());
  checker.on_evicted(MemberId{1}, "it is cut off: reset", {.stood_still = true});
  checker.on_evicted(MemberId{1}, ahead, {.links_broke = true});
  checker.on_evicted(MemberId{1}, "says that it holds microbatch 3, which is not among its own",
                     {.links_broke = true, .stood_still = true, .brought_state = true});
  EXPECT_EQ(violations.texts().size(), 3u);
}

TEST(Checkers, FindViewsThatNothingExplains) {
  Violations violations;
  ViewBudgetChecker checker(violations, 3);
  checker.on_event();
  for (int view = 0; view < 7; ++view) {  // four at the start, three for the event
    checker.on_view();
  }
  EXPECT_TRUE(violations.empty());
  checker.on_view();
  EXPECT_FALSE(violations.empty());
}

TEST(Checkers, FindAPlannedChangeThatHoldsStepsUp) {
  Violations violations;
  PaceChecker checker(violations, milliseconds(100));
  const Instant start = Instant{} + seconds(1);
  checker.on_step(1, start);
  checker.on_step(2, start + milliseconds(100));
  checker.on_fault(start + milliseconds(200));
  checker.on_step(3, start + seconds(5));  // the fault explains it
  checker.on_step(4, start + seconds(5) + milliseconds(90));
  EXPECT_TRUE(violations.empty());
  checker.on_step(5, start + seconds(6));
  EXPECT_FALSE(violations.empty());
}

TEST(Checkers, FindTheOnlyHolderOfAStepThatIsLetGo) {
  Violations violations;
  CommitChecker checker(violations, 1);
  for (const MemberId member : {MemberId{1}, MemberId{2}}) {
    checker.on_sync(member, 0, kInitialState);
  }
  checker.on_commit(MemberId{1}, 1, checker.expected(1));
  checker.on_left(MemberId{2});
  EXPECT_TRUE(violations.empty());
  checker.on_left(MemberId{1});
  EXPECT_FALSE(violations.empty());
}

TEST(Checkers, FindAViewThatUndoesWhatALivingMemberHolds) {
  Violations violations;
  CommitChecker checker(violations, 1);
  checker.on_sync(MemberId{1}, 0, kInitialState);
  checker.on_commit(MemberId{1}, 1, checker.expected(1));
  const elastic::View without{};  // resumes after step 0, and member 1 is not in it
  checker.on_died(MemberId{2});
  checker.on_view(without);
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
