// The machines of parameter servers under random schedules: workers that die between two shards,
// joins, broken connections, holds. Each test prints for how many seeds its claim was checked.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>

#include "tests/sim/parameter_server_checks.hpp"
#include "tests/sim/sweep.hpp"

namespace mayfly::sim {
namespace {

using parameter_server::SyncPlan;

/// Expects that every shard has every slice of the job exactly once, and no others.
void expect_exactly_once(const PsOptions& options, const PsResult& result) {
  ASSERT_TRUE(result.done) << named(options) << " did not end";
  std::vector<std::uint64_t> all(std::size_t{options.steps} * options.slices_per_step);
  std::iota(all.begin(), all.end(), 0);
  for (const PsShardLog& log : result.shards) {
    std::vector<std::uint64_t> committed = log.committed;
    std::sort(committed.begin(), committed.end());
    ASSERT_EQ(committed, all) << named(options);
  }
}

PsOptions with_faults(const std::string& phases, std::uint32_t shards, std::uint64_t seed) {
  PsOptions options;
  options.seed = seed;
  options.phases = phases;
  options.shards = shards;
  options.kills = static_cast<std::uint32_t>(seed % 4);
  options.joins = static_cast<std::uint32_t>(seed % 3);
  options.breaks = static_cast<std::uint32_t>(seed % 5);
  return options;
}

TEST(ParameterServers, SeedsThatFailedOnceStayGood) {
  std::ifstream file(MAYFLY_SIM_SEEDS_FILE);
  ASSERT_TRUE(file.is_open()) << MAYFLY_SIM_SEEDS_FILE;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') {
      const Outcome run =
          parameter_server_world().play(std::strtoull(line.c_str(), nullptr, 10), "none");
      EXPECT_TRUE(run.violations.empty()) << story_of(run, 40);
    }
  }
}

TEST(ParameterServers, UseEverySliceExactlyOnceOnEveryShardWhoeverDies) {
  std::uint64_t reissued = 0;
  std::uint64_t repeats = 0;
  for (const std::uint32_t shards : {1U, 3U}) {
    for (const char* phases :
         {"bsp", "asp", "ssp:1", "ssp:0", "bsp:25%,asp", "asp:30%,bsp:30%,ssp:2"}) {
      for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
        const PsOptions options = with_faults(phases, shards, seed);
        const PsResult result = run_parameter_server(options);
        expect_exactly_once(options, result);
        for (const std::uint64_t version : result.versions) {
          ASSERT_EQ(version, plan_of(options).version_at(plan_of(options).last_slice()));
        }
        reissued += result.reissued;
        repeats += result.repeats;
      }
    }
  }
  EXPECT_GT(reissued, 6 * seeds_asked()) << "the schedules do not hit what they are for";
  EXPECT_GT(repeats, seeds_asked() / 2);
}

TEST(ParameterServers, OfBspEndWithTheBitsOfOneUndisturbedWorker) {
  for (const std::uint32_t shards : {1U, 2U, 3U}) {
    PsOptions alone;
    alone.workers = 1;
    alone.shards = shards;
    const PsResult oracle = run_parameter_server(alone);
    ASSERT_TRUE(oracle.done);
    std::uint64_t compared = 0;
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      PsOptions options = with_faults("bsp", shards, seed);
      options.workers = static_cast<std::uint32_t>(1 + seed % 8);
      const PsResult result = run_parameter_server(options);
      expect_exactly_once(options, result);
      if (result.mixed > 0) {
        continue;  // no living worker had the parameters of that step; such steps are counted
      }
      ++compared;
      for (std::uint32_t s = 0; s < shards; ++s) {
        ASSERT_EQ(result.shards[s].model, oracle.shards[s].model) << named(options);
      }
    }
    EXPECT_GT(compared, seeds_asked() * 9 / 10);
  }
}

TEST(ParameterServers, OfAspAreStaleByAllOtherWorkersOnAverage) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PsOptions options;
    options.seed = seed;
    options.phases = "asp";
    options.workers = static_cast<std::uint32_t>(2 + seed % 7);
    options.slices_per_step = options.workers;
    options.steps = 200;
    options.slow = {{0, 1 + static_cast<double>(seed % 4)}};
    const PsResult result = run_parameter_server(options);
    ASSERT_TRUE(result.done);
    // Every update makes the parameters of every other worker one version older. So each update
    // adds (workers - 1) to the sum, except for workers that made no further push before the end.
    std::uint64_t sum = 0;
    std::uint64_t updates = 0;
    for (const auto& [staleness, count] : result.staleness[0]) {
      sum += staleness * count;
      updates += count;
    }
    ASSERT_EQ(updates, std::uint64_t{options.steps} * options.slices_per_step);
    const std::uint64_t expected = (options.workers - 1) * updates;
    EXPECT_LE(sum, expected);
    const std::uint64_t pipeline = options.workers * options.workers;
    EXPECT_GE(sum + 8 * pipeline, expected) << "more is missing than pulls can be outstanding";
  }
}

TEST(ParameterServers, OfSspKeepTheFastestWithinTheBound) {
  for (const std::uint32_t bound : {0U, 1U, 3U}) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      PsOptions options;
      options.seed = seed;
      options.phases = "ssp:" + std::to_string(bound);
      options.steps = 60;
      options.slow = {{1, 4.0}};
      options.shards = static_cast<std::uint32_t>(1 + seed % 2);
      const PsResult result = run_parameter_server(options);
      expect_exactly_once(options, result);
      EXPECT_LE(result.clock_gap_max, bound + 1) << named(options);
    }
  }
}

TEST(ParameterServers, OfSspWithoutABoundDoWhatAspDoes) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    PsOptions asp;
    asp.seed = seed;
    asp.phases = "asp";
    asp.slow = {{2, 3.0}};
    PsOptions ssp = asp;
    ssp.phases = "ssp:1000000";
    const PsResult one = run_parameter_server(asp);
    const PsResult other = run_parameter_server(ssp);
    EXPECT_EQ(one.shards[0].committed, other.shards[0].committed);
    EXPECT_EQ(one.shards[0].model, other.shards[0].model);
  }
}

/// With a bound of 0 no worker is ahead by a slice, but each slice is a separate update. So even a
/// single worker computes other weights than BSP.
TEST(ParameterServers, OfSspWithABoundOfZeroDoNotHaveTheWeightsOfBsp) {
  for (const std::uint32_t workers : {1U, 4U}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      PsOptions bsp;
      bsp.seed = seed;
      bsp.workers = workers;
      bsp.shards = 2;
      PsOptions ssp = bsp;
      ssp.phases = "ssp:0";
      const PsResult one = run_parameter_server(bsp);
      const PsResult other = run_parameter_server(ssp);
      expect_exactly_once(ssp, other);
      EXPECT_EQ(other.versions[0], one.versions[0] * ssp.slices_per_step);
      for (std::uint32_t s = 0; s < ssp.shards; ++s) {
        EXPECT_NE(one.shards[s].model, other.shards[s].model) << named(ssp);
      }
    }
  }
}

/// The only cost of a switch of phases is that every worker waits once for all others.
TEST(ParameterServers, SwitchWithinAStep) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PsOptions options;
    options.seed = seed;
    options.steps = 40;
    options.jitter = 0;
    options.shards = static_cast<std::uint32_t>(1 + seed % 3);
    const auto took_ms = [&options](const std::string& phases) {
      PsOptions other = options;
      other.phases = phases;
      const PsResult result = run_parameter_server(other);
      EXPECT_TRUE(result.done);
      return to_ms(result.over);
    };
    const double bsp = took_ms("bsp");
    const double asp = took_ms("asp");
    const double step = bsp / options.steps;
    EXPECT_LT(took_ms("bsp:50%,asp"), (bsp + asp) / 2 + step) << seed;
    EXPECT_LT(took_ms("bsp:25%,asp:25%,bsp:25%,asp"), (bsp + asp) / 2 + 3 * step) << seed;
  }
}

TEST(ParameterServers, OfAspWithAStragglerLeaveItBehindAndBspDoesNot) {
  PsOptions options;
  options.steps = 50;
  options.jitter = 0;
  options.slow = {{0, 4.0}};
  const Duration bsp = run_parameter_server(options).took;
  options.phases = "asp";
  const Duration asp = run_parameter_server(options).took;
  EXPECT_GT(to_ms(bsp) / to_ms(asp), 2.0);
}

TEST(ParameterServers, WithBackupsDropTheLateAndTrainOnThemLater) {
  std::uint64_t late = 0;
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    PsOptions options = with_faults("backup:3-of-4", 1, seed);
    options.slices_per_step = 3;
    options.slow = {{0, 3.0}};
    const PsResult result = run_parameter_server(options);
    expect_exactly_once(options, result);
    const std::uint64_t committed = result.shards[0].committed.size();
    ASSERT_EQ(result.computed, committed + result.repeats + result.late) << named(options);
    for (const std::size_t size : result.shards[0].update_sizes) {
      ASSERT_EQ(size, 3U);
    }
    late += result.late;
  }
  EXPECT_GT(late, seeds_asked());
}

TEST(ParameterServers, WithBackupsDoNotWaitForASliceThatCameTooLateUntilThePhaseEnds) {
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    PsOptions options;
    options.seed = seed;
    options.phases = "backup:3-of-4";
    options.steps = 60;
    options.slices_per_step = 3;
    options.slow = {{0, 5.0}};
    const PsResult result = run_parameter_server(options);
    expect_exactly_once(options, result);
    EXPECT_GT(result.late, 5U);
    EXPECT_EQ(result.reissued, 0U);
    const std::vector<std::uint64_t>& order = result.shards[0].committed;
    for (std::uint64_t place = 0; place < order.size(); ++place) {
      // The worker pushes again after about five versions, and its slice is in the version after
      // the next one.
      ASSERT_LE(place, order[place] + 9 * options.slices_per_step) << named(options);
    }
  }
}

TEST(ParameterServers, ReplayedFromTheRecordedOrderGiveTheSameBits) {
  for (const char* phases : {"bsp", "asp", "ssp:2", "bsp:20%,asp:40%,bsp"}) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      const PsOptions options = with_faults(phases, 2, seed);
      const PsResult result = run_parameter_server(options);
      for (std::uint32_t s = 0; s < options.shards; ++s) {
        ASSERT_EQ(replay(plan_of(options), s, result.shards[s]), result.shards[s].model);
      }
    }
  }
}

TEST(ParameterServers, AreAFunctionOfTheirSeed) {
  const PsOptions options = with_faults("asp", 3, 11);
  EXPECT_EQ(run_parameter_server(options).shards[2].model,
            run_parameter_server(options).shards[2].model);
}

TEST(ParameterServers, TakeSnapshotsWhenEveryShardHasExactlyTheSlicesBefore) {
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    for (const char* phases : {"bsp", "asp", "ssp:1"}) {
      PsOptions options = with_faults(phases, 2, seed);
      options.snapshot_steps = {5, 12};
      const PsResult result = run_parameter_server(options);
      expect_exactly_once(options, result);
      ASSERT_EQ(result.snapshots.size(), 3U);
      ASSERT_EQ(result.snapshots.rbegin()->first, options.steps);
    }
  }
}

TEST(ParameterServers, HeldComeToRestAtAStepsEndUnlessAViewGoesOn) {
  std::uint32_t quiet = 0;
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    for (const char* phases : {"bsp", "asp", "ssp:1"}) {
      PsOptions options = with_faults(phases, static_cast<std::uint32_t>(1 + seed % 2), seed);
      options.holds = 1;
      expect_exactly_once(options, run_parameter_server(options));
      options.kills = 0;
      options.joins = 0;
      quiet += run_parameter_server(options).quiet_moments;
    }
  }
  EXPECT_GT(quiet, seeds_asked() * 3 * 9 / 10);
}

TEST(ParameterServers, SwitchingBetweenBspAndBspChangesNothing) {
  PsOptions whole;
  whole.shards = 2;
  PsOptions cut = whole;
  cut.phases = "bsp:35%,bsp";
  EXPECT_EQ(run_parameter_server(whole).shards[1].model, run_parameter_server(cut).shards[1].model);
}

}  // namespace
}  // namespace mayfly::sim
