// Links between a worker and a server that lose everything while both reach the coordinator. The
// worker is evicted when that is noticed, and joins again; the other workers do not wait for it.

#include <gtest/gtest.h>

#include "tests/sim/parameter_server_checks.hpp"

namespace mayfly::sim {
namespace {

PsOptions with_cut(const std::string& phases, std::uint32_t shards, std::uint64_t seed) {
  PsOptions options;
  options.seed = seed;
  options.phases = phases;
  options.shards = shards;
  PsCut cut;
  cut.worker = static_cast<std::uint32_t>(seed % 4);
  cut.shard = static_cast<std::uint32_t>(seed / 4 % shards);
  cut.from = milliseconds(2) + std::chrono::microseconds(seed * 131 % 8000);
  cut.up = seed % 3 != 1;
  cut.down = seed % 3 != 2;
  options.cuts = {cut};
  return options;
}

/// Expects that the job took at most the time until the cut was noticed, plus 1.25 times as long as
/// without the worker that has the cut link.
void expect_one_detection(const PsOptions& options, const PsResult& result) {
  PsOptions others = options;
  others.cuts.clear();
  others.workers = 3;
  const Duration without = run_parameter_server(others).over;
  const Duration noticed = options.cuts[0].from + options.cut_noticed;
  EXPECT_LT(to_ms(result.over), to_ms(noticed) + 1.25 * to_ms(without)) << named(options);
}

TEST(CutLinks, CostOneDetectionAndNothingForEachTimeThatTheWorkerJoinsAgain) {
  for (const std::uint32_t shards : {1U, 2U, 3U}) {
    for (std::uint64_t seed = 1; seed <= seeds_asked() / 5; ++seed) {
      PsOptions options = with_cut("bsp", shards, seed);
      options.steps = 200;
      const PsResult result = run_parameter_server(options);
      ASSERT_EQ(violation(options, result), "") << named(options);
      EXPECT_GE(result.cut_off, 4U) << named(options) << ": it must come back again and again";
      expect_one_detection(options, result);
    }
  }
}

TEST(CutLinks, LoseAndDoubleNothingInAnyPolicyWhoeverElseDies) {
  std::uint64_t reissued = 0;
  for (const std::uint32_t shards : {1U, 3U}) {
    for (const char* phases : {"bsp", "asp", "ssp:1", "bsp:25%,asp", "asp:30%,bsp:30%,ssp:2"}) {
      for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
        PsOptions options = with_cut(phases, shards, seed);
        options.kills = static_cast<std::uint32_t>(seed % 3);
        options.joins = static_cast<std::uint32_t>(seed % 4);
        options.breaks = static_cast<std::uint32_t>(seed % 5);
        const PsResult result = run_parameter_server(options);
        ASSERT_EQ(violation(options, result), "") << named(options);
        reissued += result.reissued;
      }
    }
  }
  EXPECT_GT(reissued, 5 * seeds_asked()) << "the cuts do not hit what they are for";
}

TEST(CutLinks, AreNotWaitedForInRoundsWithBackups) {
  for (std::uint64_t seed = 1; seed <= seeds_asked() / 5; ++seed) {
    PsOptions options = with_cut("backup:3-of-4", 1, seed);
    options.slices_per_step = 3;
    options.steps = 100;
    const PsResult result = run_parameter_server(options);
    ASSERT_EQ(violation(options, result), "") << named(options);
    expect_one_detection(options, result);
  }
}

/// One worker cannot reach a server while another server dies and its follower takes over.
TEST(CutLinks, AndALostServerTogetherLoseNothing) {
  std::uint64_t takeovers = 0;
  for (const char* phases : {"bsp", "asp"}) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      PsOptions options = with_cut(phases, static_cast<std::uint32_t>(2 + seed % 2), seed);
      options.followers = true;
      options.server_kills = 1;
      const PsResult result = run_parameter_server(options);
      ASSERT_FALSE(result.torn);
      ASSERT_EQ(violation(options, result), "") << named(options);
      takeovers += result.takeovers;
    }
  }
  EXPECT_GT(takeovers, seeds_asked() / 2);
}

}  // namespace
}  // namespace mayfly::sim
