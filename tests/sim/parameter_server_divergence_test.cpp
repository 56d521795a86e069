// Jobs that diverge in a phase without rounds and fall back to earlier parameters. The workers
// compute the slices since those parameters again, in rounds, even if processes die meanwhile.

#include <gtest/gtest.h>

#include "tests/sim/parameter_server_checked.hpp"
#include "tests/sim/parameter_server_checks.hpp"

namespace mayfly::sim {
namespace {

using parameter_server::SyncPlan;

/// A job of 40 steps of 4 slices: bsp for the first 12, then a phase that diverges after a while.
PsOptions diverging(std::uint32_t shards, std::uint64_t seed) {
  PsOptions options;
  options.seed = seed;
  options.phases = seed % 2 == 0 ? "bsp:30%,asp" : "bsp:30%,ssp:2";
  options.steps = 40;
  options.shards = shards;
  options.falls_back = true;
  options.diverges_from = 12 * 4 + seed % 60;
  return options;
}

PsOptions with_faults(PsOptions options) {
  options.kills = static_cast<std::uint32_t>(options.seed % 4);
  options.joins = static_cast<std::uint32_t>(options.seed % 3);
  options.breaks = static_cast<std::uint32_t>(options.seed % 5);
  return options;
}

/// The result of the same job without the phase that diverges.
PsResult in_rounds_only(const PsOptions& options) {
  PsOptions other;
  other.steps = options.steps;
  other.shards = options.shards;
  other.workers = 1;
  return run_parameter_server(other);
}

TEST(DivergingJobs, EndWithTheBitsOfAJobInRoundsFromWhereAllWasWell) {
  std::uint64_t compared = 0;
  for (const std::uint32_t shards : {1U, 2U, 3U}) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      const PsOptions options = with_faults(diverging(shards, seed));
      const PsResult result = checked(options);
      ASSERT_TRUE(result.rewind.has_value()) << named(options);
      EXPECT_EQ(result.rewind->to, 12U * 4) << named(options);
      EXPECT_GT(result.rewind->at, options.diverges_from) << named(options);
      if (result.mixed > 0) {
        continue;
      }
      ++compared;
      const PsResult oracle = in_rounds_only(options);
      for (std::uint32_t s = 0; s < shards; ++s) {
        ASSERT_EQ(result.shards[s].model, oracle.shards[s].model) << named(options);
      }
    }
  }
  EXPECT_GT(compared, 3 * seeds_asked() * 8 / 10);
}

TEST(DivergingJobs, FallBackToTheNewestCutBeforeTheTrouble) {
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    PsOptions options = with_faults(diverging(static_cast<std::uint32_t>(1 + seed % 3), seed));
    options.rest_steps = {18, 24, 30, 36};
    options.diverges_from = 26 * 4 + seed % 8;
    const PsResult result = checked(options);
    ASSERT_TRUE(result.rewind.has_value()) << named(options);
    EXPECT_EQ(result.rewind->to, 24U * 4) << named(options);
    const SyncPlan plan = plan_after(options, result);
    EXPECT_EQ(plan.steps_before(result.rewind->at), 24U);
    EXPECT_EQ(plan.steps_before(plan.last_slice()), 40U);
  }
}

TEST(DivergingJobs, RecordNothingThatIsInDoubt) {
  std::uint64_t left_out = 0;
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    PsOptions options = with_faults(diverging(2, seed));
    options.snapshot_steps = {18, 22, 26, 30, 34, 38};
    options.diverges_from = 20 * 4 + 4 * (seed % 5);
    const PsResult result = checked(options);
    ASSERT_TRUE(result.rewind.has_value()) << named(options);
    // Steps that are computed again are recorded again, so at the end no snapshot is missing.
    EXPECT_EQ(result.snapshots.size(), 7U) << named(options);
    left_out += result.rewind->to < 22 * 4 ? 1 : 0;
  }
  EXPECT_GT(left_out, 0U);
}

TEST(DivergingJobs, GoOnAsTheyAreIfItWasNothing) {
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    PsOptions options = with_faults(diverging(2, seed));
    options.rest_steps = {18, 24, 30, 36};
    options.calm_from = options.diverges_from + 1;
    const PsResult result = checked(options);
    EXPECT_FALSE(result.rewind.has_value()) << named(options);
  }
}

TEST(DivergingJobs, DoNotNoticeServersThatDie) {
  std::uint64_t takeovers = 0;
  for (std::uint64_t seed = 1; seed <= 2 * seeds_asked(); ++seed) {
    PsOptions options = with_faults(diverging(static_cast<std::uint32_t>(2 + seed % 2), seed));
    options.rest_steps = {18, 24, 30, 36};
    options.followers = true;
    options.server_kills = seed % 2 == 0 ? 1 : 0;
    options.zombies = seed % 2 == 0 ? 0 : 1;
    const PsResult result = checked(options);
    ASSERT_FALSE(result.torn);
    ASSERT_TRUE(result.rewind.has_value()) << named(options);
    takeovers += result.takeovers;
  }
  EXPECT_GT(takeovers, seeds_asked());
}

TEST(DivergingJobs, ComeToRestWhenHeldOnlyAfterTheyHaveFallenBack) {
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    PsOptions options = with_faults(diverging(2, seed));
    options.holds = 3;
    ASSERT_TRUE(checked(options).rewind.has_value()) << named(options);
  }
}

}  // namespace
}  // namespace mayfly::sim
