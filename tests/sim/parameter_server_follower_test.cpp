// Shards with followers under random schedules: servers that die or are declared lost, alone,
// together, and with workers; and machines with planted defects.

#include <gtest/gtest.h>

#include "tests/sim/parameter_server_checked.hpp"
#include "tests/sim/parameter_server_checks.hpp"
#include "tests/sim/parameter_server_scenario.hpp"

namespace mayfly::sim {
namespace {

PsOptions with_followers(const std::string& phases, std::uint32_t shards, std::uint64_t seed) {
  PsOptions options;
  options.seed = seed;
  options.phases = phases;
  options.shards = shards;
  options.followers = true;
  options.kills = static_cast<std::uint32_t>(seed % 3);
  options.joins = static_cast<std::uint32_t>(seed % 2);
  options.breaks = static_cast<std::uint32_t>(seed % 4);
  return options;
}

constexpr const char* kFollowedPhases[] = {"bsp", "asp", "ssp:1", "bsp:25%,asp",
                                           "asp:30%,bsp:30%,ssp:2"};

TEST(Followers, TakeOverWithoutAnythingLostWhoeverElseDies) {
  std::uint64_t takeovers = 0;
  for (const char* phases : kFollowedPhases) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      PsOptions options = with_followers(phases, static_cast<std::uint32_t>(2 + seed % 3), seed);
      options.server_kills = 1;
      const PsResult result = checked(options);
      ASSERT_FALSE(result.torn) << named(options);
      takeovers += result.takeovers;
    }
  }
  EXPECT_GT(takeovers, 5 * seeds_asked() * 9 / 10) << "the schedules do not hit what they are for";
}

TEST(Followers, OfServersTakenForDeadLetNobodyHearTwoLeaders) {
  std::uint64_t takeovers = 0;
  for (const char* phases : kFollowedPhases) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      PsOptions options = with_followers(phases, static_cast<std::uint32_t>(2 + seed % 3), seed);
      options.zombies = 1;
      takeovers += checked(options).takeovers;
    }
  }
  EXPECT_GT(takeovers, 5 * seeds_asked() * 9 / 10);
}

TEST(Followers, LostWithTheirLeadersEndTheJobAndOtherwiseItGoesOn) {
  std::uint64_t torn = 0;
  std::uint64_t survived = 0;
  for (const char* phases : {"bsp", "asp"}) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      PsOptions options = with_followers(phases, 4, seed);
      options.server_kills = 2;
      const PsResult result = checked(options);
      torn += result.torn ? 1 : 0;
      survived += result.torn ? 0 : 1;
    }
  }
  EXPECT_GT(torn, seeds_asked() / 2);
  EXPECT_GT(survived, seeds_asked() / 4);
}

TEST(Followers, HaveWhatSnapshotsAreTakenOf) {
  for (const char* phases : {"bsp", "asp", "ssp:1"}) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      PsOptions options = with_followers(phases, 2, seed);
      options.server_kills = 1;
      options.snapshot_steps = {5, 12};
      ASSERT_EQ(checked(options).snapshots.size(), 3U) << named(options);
    }
  }
}

TEST(Followers, OfTheFirstShardKnowItsLeases) {
  for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
    PsOptions options = with_followers(seed % 2 == 0 ? "asp" : "bsp", 2, seed);
    options.server_kills = 1;
    options.holds = 1;
    checked(options);
  }
}

TEST(Followers, GoOnWithWhatTheirLeadersMadeOfStragglers) {
  std::uint64_t changes = 0;
  for (const auto policy :
       {parameter_server::StragglerPolicy::kGreedy, parameter_server::StragglerPolicy::kElastic}) {
    for (std::uint64_t seed = 1; seed <= seeds_asked() / 2; ++seed) {
      PsOptions options = with_followers("bsp:60%,asp", 2, seed);
      options.steps = 60;
      options.slices_per_step = 12;
      options.jitter = 0.1;
      options.slow = {{1, 4.0}};
      options.stragglers = policy;
      options.server_kills = 1;
      changes += checked(options).straggler_changes.size();
    }
  }
  EXPECT_GT(changes, seeds_asked() / 4);
}

/// As many workers as servers; worker i runs server i, and workers that join later run none.
PsOptions colocated(const std::string& phases, std::uint32_t workers, std::uint64_t seed) {
  PsOptions options = with_followers(phases, workers, seed);
  options.workers = workers;
  options.colocated = true;
  options.kills = 1;
  return options;
}

TEST(Colocated, WorkersAreLostWithTheirServersAndNothingElseIs) {
  std::uint64_t takeovers = 0;
  for (const char* phases : kFollowedPhases) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      const PsResult result =
          checked(colocated(phases, static_cast<std::uint32_t>(2 + seed % 3), seed));
      ASSERT_FALSE(result.torn) << named(colocated(phases, 2, seed));
      takeovers += result.takeovers;
    }
  }
  EXPECT_GT(takeovers, 5 * seeds_asked() / 2) << "the schedules do not hit what they are for";
}

TEST(Colocated, WorkersTakenForDeadTalkToTheirOwnServersAndNobodyElseHears) {
  std::uint64_t takeovers = 0;
  for (const char* phases : kFollowedPhases) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      PsOptions options = colocated(phases, static_cast<std::uint32_t>(2 + seed % 3), seed);
      options.kills = 0;
      options.zombies = 1;
      takeovers += checked(options).takeovers;
    }
  }
  EXPECT_GT(takeovers, 5 * seeds_asked() / 2);
}

TEST(Colocated, NeighboursLostTogetherEndTheJobAndOthersDoNot) {
  std::uint64_t torn = 0;
  std::uint64_t survived = 0;
  for (const char* phases : {"bsp", "asp"}) {
    for (std::uint64_t seed = 1; seed <= seeds_asked(); ++seed) {
      PsOptions options = colocated(phases, 4, seed);
      options.kills = 2;
      options.joins = 0;
      const PsResult result = checked(options);
      torn += result.torn ? 1 : 0;
      survived += !result.torn && result.takeovers >= 2 ? 1 : 0;
    }
  }
  EXPECT_GT(torn, seeds_asked() / 2);
  EXPECT_GT(survived, seeds_asked() / 8);
}

/// A schedule in which the defect can be detected.
PsOptions for_sabotage(PsSabotage sabotage, std::uint64_t seed) {
  PsOptions options = with_followers("bsp", 2, seed);
  options.sabotage = sabotage;
  switch (sabotage) {
    case PsSabotage::kLeaksBeforeFollower:
    case PsSabotage::kFollowerMissesPush: options.server_kills = 1; break;
    case PsSabotage::kVelocityLost: options.phases = "bsp:40%,bsp"; break;
    case PsSabotage::kConfirmsEarly:
      options.phases = "asp";
      options.shards = 3;
      options.kills = 3;
      break;
    case PsSabotage::kStaleBound:
      options = {};
      options.seed = seed;
      options.phases = "ssp:1";
      options.steps = 60;
      options.slow = {{1, 4.0}};
      options.sabotage = sabotage;
      break;
    case PsSabotage::kRestoresNothing:
      options.phases = "bsp:30%,asp";
      options.falls_back = true;
      options.diverges_from = 30;
      break;
    case PsSabotage::kDeafToTheStopped:
    case PsSabotage::kJudgesSteps:  // a pause must coincide with the job's last step
      options = {};
      options.seed = seed;
      options.phases = "asp";
      options.coordinated = true;
      options.workers = 1;
      options.steps = 6;
      options.pauses_at = {{milliseconds(static_cast<std::int64_t>(seed)), milliseconds(5)}};
      options.sabotage = sabotage;
      break;
    case PsSabotage::kForgetsToBeQuiet:
      options = draw_parameter_server(seed);
      options.stop_timeout = seconds(10);
      options.pauses = 3;
      options.sabotage = sabotage;
      break;
    case PsSabotage::kComputesTwice:
    case PsSabotage::kNeglectsTheLate:
      options = {};
      options.seed = seed;
      options.phases = "asp";
      options.coordinated = true;
      options.steps = 40;
      options.slices_per_step = 8;
      options.joins = 1;
      options.sabotage = sabotage;
      break;
    default: options.kills = 2; break;
  }
  return options;
}

TEST(PsCheckers, NoticeEveryBrokenMachine) {
  for (const PsSabotage sabotage : kAllPsSabotage) {
    std::string seen;
    for (std::uint64_t seed = 1; seed <= 60 && seen.empty(); ++seed) {
      const PsOptions options = for_sabotage(sabotage, seed);
      seen = violation(options, run_parameter_server(options));
    }
    EXPECT_NE(seen, "") << to_text(sabotage) << " was noticed by no checker";
  }
}

TEST(PsCheckers, HaveNothingAgainstTheSameSchedulesWithSoundMachines) {
  for (const PsSabotage sabotage : kAllPsSabotage) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      PsOptions options = for_sabotage(sabotage, seed);
      options.sabotage = PsSabotage::kNone;
      checked(options);
    }
  }
}

}  // namespace
}  // namespace mayfly::sim
