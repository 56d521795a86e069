// Orders to a running job with parameter servers and the product's coordinator: pause, resume and
// stop. Workers join or leave.

#include <gtest/gtest.h>

#include <iostream>

#include "tests/sim/parameter_server_checks.hpp"
#include "tests/sim/sweep.hpp"

namespace mayfly::sim {
namespace {

PsOptions coordinated(const std::string& phases, std::uint64_t seed) {
  PsOptions options;
  options.seed = seed;
  options.phases = phases;
  options.steps = 12;
  options.coordinated = true;
  return options;
}

/// One of two servers is lost early, and one worker is left.
PsOptions with_a_lost_server(const std::string& phases, std::uint64_t seed) {
  PsOptions options = coordinated(phases, seed);
  options.workers = static_cast<std::uint32_t>(1 + seed % 2);
  options.shards = 2;
  options.followers = true;
  options.server_kills = 1;
  options.faults_within = milliseconds(8);
  return options;
}

bool is_sound(const PsOptions& options, const PsResult& result) {
  const Outcome outcome = outcome_of(options, result);
  EXPECT_TRUE(outcome.violations.empty()) << story_of(outcome, 60);
  return outcome.violations.empty();
}

template <typename Order>
void order_near_the_end(const PsOptions& undisturbed, Order order) {
  const PsResult calm = run_parameter_server(undisturbed);
  ASSERT_TRUE(is_sound(undisturbed, calm));
  for (Duration at = calm.over - milliseconds(8); at < calm.over + milliseconds(2);
       at = at + std::chrono::microseconds(200)) {
    PsOptions options = undisturbed;
    order(options, at);
    ASSERT_TRUE(is_sound(options, run_parameter_server(options))) << "at " << to_ms(at) << " ms";
  }
}

constexpr const char* kPhases[] = {"asp", "bsp", "ssp:1", "bsp:50%,asp"};

TEST(PsOrders, APauseAtAnyPointNearTheEndOfAJobDelaysItAndNothingElse) {
  for (const char* phases : kPhases) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      order_near_the_end(with_a_lost_server(phases, seed), [](PsOptions& options, Duration at) {
        options.pauses_at = {{at, milliseconds(5)}};
      });
    }
  }
}

TEST(PsOrders, AStopAtAnyPointNearTheEndOfAJobIsAStopOrTheEnd) {
  for (const char* phases : kPhases) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      order_near_the_end(with_a_lost_server(phases, seed),
                         [](PsOptions& options, Duration at) { options.stop_at = at; });
    }
  }
}

TEST(PsOrders, ANewWorkerOrANoticeAtAnyPointNearTheEndOfAJobHarmsNothing) {
  for (const char* phases : kPhases) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      PsOptions options = with_a_lost_server(phases, seed);
      options.workers = 3;
      order_near_the_end(options, [](PsOptions& other, Duration at) {
        other.joins = 1;
        other.drains = 1;
        other.faults_within = at + milliseconds(1);
      });
    }
  }
}

/// All orders in all kinds of jobs, at random moments, and with faults.
TEST(PsWorld, EveryScheduleEndsAsItShould) {
  SweepOptions options;
  options.world = &parameter_server_world();
  options.seeds = 10 * seeds_asked();
  const SweepResult result = sweep(options);
  for (const Outcome& failure : result.first) {
    ADD_FAILURE() << story_of(failure, 40);
  }
  EXPECT_EQ(result.failing, 0U);
  std::cout << summary_line(options, result) << '\n';
}

TEST(PsWorld, ASeedAlwaysGivesTheSameRunOnAnyThread) {
  SweepOptions options;
  options.world = &parameter_server_world();
  options.seeds = 60;
  const std::string one = summary_line(options, sweep(options));
  options.threads = 3;
  EXPECT_EQ(summary_line(options, sweep(options)), one);
}

}  // namespace
}  // namespace mayfly::sim
