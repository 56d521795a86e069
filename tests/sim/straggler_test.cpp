// Steps while a worker is slow, under random schedules: the machines of parameter servers with each
// straggler policy.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/sim/parameter_server_world.hpp"

namespace mayfly::sim {
namespace {

using parameter_server::StragglerPolicy;

constexpr std::uint64_t kSeeds = 60;

/// Four workers of which one is four times slower for a part of the job.
PsOptions with_straggler(StragglerPolicy policy, std::uint64_t seed, std::uint32_t shards = 1) {
  PsOptions options;
  options.seed = seed;
  options.phases = "bsp";
  options.steps = 150;
  options.slices_per_step = 12;
  options.shards = shards;
  options.jitter = 0.1;
  options.slow = {{1, 4.0}};
  options.slow_from = 20 * 12;
  options.slow_to = 100 * 12;
  options.stragglers = policy;
  return options;
}

void expect_exactly_once(const PsOptions& options, const PsResult& result) {
  ASSERT_TRUE(result.done) << "seed " << options.seed << " did not end";
  std::vector<std::uint64_t> all(std::size_t{options.steps} * options.slices_per_step);
  std::iota(all.begin(), all.end(), 0);
  for (const PsShardLog& log : result.shards) {
    std::vector<std::uint64_t> committed = log.committed;
    std::sort(committed.begin(), committed.end());
    ASSERT_EQ(committed, all) << "seed " << options.seed;
  }
  for (const std::uint64_t version : result.versions) {
    ASSERT_EQ(version, result.final_version) << "seed " << options.seed;
  }
}

TEST(Stragglers, AreFoundAndFoundToBeNoneAnyMore) {
  for (const StragglerPolicy policy : {StragglerPolicy::kGreedy, StragglerPolicy::kElastic}) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const PsOptions options = with_straggler(policy, seed);
      const PsResult result = run_parameter_server(options);
      expect_exactly_once(options, result);
      ASSERT_EQ(result.straggler_changes.size(), 2U) << "seed " << seed;
      EXPECT_TRUE(result.straggler_changes[0].is_slow);
      EXPECT_EQ(value(result.straggler_changes[0].worker), 2U);
      EXPECT_GT(result.straggler_changes[0].ratio, 2);
      EXPECT_FALSE(result.straggler_changes[1].is_slow);
    }
  }
}

TEST(Stragglers, CostMoreTimeThanLeavingThemOut) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto took = [seed](StragglerPolicy policy) {
      return to_ms(run_parameter_server(with_straggler(policy, seed)).took);
    };
    const double ignored = took(StragglerPolicy::kNone);
    EXPECT_LT(took(StragglerPolicy::kElastic), 0.75 * ignored);
    EXPECT_LT(took(StragglerPolicy::kGreedy), 0.75 * ignored);
  }
}

TEST(Stragglers, LeftOutComputeNothingButProbesAndAreLetInAgain) {
  const PsOptions options = with_straggler(StragglerPolicy::kElastic, 3);
  const PsResult result = run_parameter_server(options);
  EXPECT_GT(result.probes, 2U);
  EXPECT_EQ(result.at_once, 0U);
  EXPECT_LT(result.pushed.at(1), result.pushed.at(0) * 3 / 4);
  EXPECT_GT(result.pushed.at(1), result.pushed.at(0) / 3) << "it was not let in again";
}

TEST(Stragglers, LeftOutOrNotTheBitsOfBspAreThoseOfOneWorker) {
  for (const std::uint32_t shards : {1U, 2U}) {
    PsOptions alone = with_straggler(StragglerPolicy::kNone, 1, shards);
    alone.workers = 1;
    const PsResult oracle = run_parameter_server(alone);
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      PsOptions options = with_straggler(StragglerPolicy::kElastic, seed, shards);
      options.kills = static_cast<std::uint32_t>(seed % 2);
      options.breaks = static_cast<std::uint32_t>(seed % 3);
      const PsResult result = run_parameter_server(options);
      expect_exactly_once(options, result);
      if (result.mixed == 0) {
        for (std::uint32_t s = 0; s < shards; ++s) {
          ASSERT_EQ(result.shards[s].model, oracle.shards[s].model) << "seed " << seed;
        }
      }
    }
  }
}

TEST(Stragglers, OfAGreedyJobAreUpdatesOfTheirOwnWhileTheyAreSlow) {
  for (const std::uint32_t shards : {1U, 3U}) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      PsOptions options = with_straggler(StragglerPolicy::kGreedy, seed, shards);
      options.kills = static_cast<std::uint32_t>(seed % 3);
      options.joins = static_cast<std::uint32_t>(seed % 2);
      options.breaks = static_cast<std::uint32_t>(seed % 4);
      options.snapshot_steps = {30, 60, 120};
      const PsResult result = run_parameter_server(options);
      expect_exactly_once(options, result);
      ASSERT_EQ(result.snapshots.size(), 4U);
      for (std::uint32_t s = 0; s < shards; ++s) {
        ASSERT_EQ(replay(plan_of(options), s, result.shards[s]), result.shards[s].model);
      }
    }
  }
}

TEST(Stragglers, SwitchAGreedyJobBothWays) {
  const PsOptions options = with_straggler(StragglerPolicy::kGreedy, 5);
  const PsResult result = run_parameter_server(options);
  const std::uint64_t slices = std::uint64_t{options.steps} * options.slices_per_step;
  EXPECT_GT(result.at_once, slices / 4);
  EXPECT_LT(result.at_once, slices * 3 / 4);
  EXPECT_EQ(result.at_once % options.slices_per_step, 0U) << "a step was done in two ways";
  EXPECT_EQ(result.versions[0],
            result.at_once + (slices - result.at_once) / options.slices_per_step);
}

TEST(Stragglers, InAspAndSspAreLeftAlone) {
  for (const char* phases : {"asp", "ssp:1", "backup:3-of-4"}) {
    PsOptions options = with_straggler(StragglerPolicy::kElastic, 7);
    options.phases = phases;
    const PsResult result = run_parameter_server(options);
    expect_exactly_once(options, result);
    EXPECT_EQ(result.probes, 0U);
  }
}

TEST(Stragglers, ThatAreNotWorthItStay) {
  PsOptions options = with_straggler(StragglerPolicy::kElastic, 2);
  options.slices_per_step = 4;  // three workers would need two slices in a row
  options.slow = {{1, 1.6}};
  options.slow_from = 0;
  const PsResult result = run_parameter_server(options);
  expect_exactly_once(options, result);
  EXPECT_GE(result.straggler_changes.size(), 1U);
  EXPECT_EQ(result.probes, 0U);
}

}  // namespace
}  // namespace mayfly::sim
