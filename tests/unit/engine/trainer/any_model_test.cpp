#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/engine/trainer/linear_model.hpp"

// The trainer with a model that it knows only through its ports. It must keep the same promises as
// with the engine's own networks.

namespace mayfly::engine {
namespace {

using test_support::Death;
using test_support::TrainingWorld;
using test_support::WorldEnd;
using test_support::WorldOptions;

constexpr std::uint64_t kLinearSteps = 12;

JobConfig linear_job() {
  JobConfig config;
  config.global_batch = 16;
  config.microbatch = 2;
  config.steps = kLinearSteps;
  config.digest_every = 1;
  config.audit_every = 3;
  config.evaluate = false;
  return config;
}

WorldOptions linear_world(std::uint32_t workers, bool has_feed = true) {
  WorldOptions options;
  options.workers = workers;
  options.make_kit = [has_feed](const JobConfig& config, const std::function<void()>& unrequested) {
    return test_support::make_linear_kit(config, has_feed, unrequested);
  };
  return options;
}

const WorldEnd& linear_alone() {
  static const WorldEnd end = TrainingWorld(linear_job(), linear_world(1)).run();
  return end;
}

void expect_the_bits_of_one(const WorldEnd& end, const std::string& what) {
  EXPECT_EQ(end.outcome, elastic::Outcome::kDone) << what << ": " << end.detail;
  EXPECT_EQ(end.digests, linear_alone().digests) << what;
  EXPECT_EQ(end.sample_hashes, linear_alone().sample_hashes) << what;
  EXPECT_TRUE(end.contradictions.empty()) << what << ": " << end.contradictions.front();
}

TEST(TrainerOfAnyModel, AloneReportsEveryStepAndAsksAheadForItsSamples) {
  EXPECT_EQ(linear_alone().outcome, elastic::Outcome::kDone) << linear_alone().detail;
  EXPECT_EQ(linear_alone().digests.size(), kLinearSteps);
  EXPECT_NE(linear_alone().digests.at(1), linear_alone().digests.at(kLinearSteps));
  EXPECT_EQ(linear_alone().unrequested, 0u);
}

TEST(TrainerOfAnyModel, NeedsNoFeed) {
  TrainingWorld world(linear_job(), linear_world(3, false));
  expect_the_bits_of_one(world.run(), "without a feed");
}

TEST(TrainerOfAnyModel, LosesAWorkerAtAnyOperation) {
  std::uint64_t operations = 0;
  {
    TrainingWorld world(linear_job(), linear_world(3));
    const WorldEnd end = world.run();
    expect_the_bits_of_one(end, "three workers");
    for (const auto& [member, count] : end.operations) {
      operations = std::max(operations, count);
    }
  }
  ASSERT_GT(operations, kLinearSteps);
  for (const Death death : {Death::kBefore, Death::kDuring, Death::kAfter}) {
    for (std::uint64_t operation = 0; operation < operations; ++operation) {
      TrainingWorld world(linear_job(), linear_world(3));
      world.let_die(1, operation, death);
      const WorldEnd end = world.run();
      expect_the_bits_of_one(end, "operation " + std::to_string(operation));
      EXPECT_EQ(end.notes.count("evicted"), 0u) << "nobody else is blamed";
    }
  }
}

TEST(TrainerOfAnyModel, GivesItsStateToWhoeverJoinsAndLosesAnother) {
  JobConfig config = linear_job();
  config.steps = 400;
  const WorldEnd alone = TrainingWorld(config, linear_world(1)).run();
  for (const std::uint64_t observe_from : {std::uint64_t{1}, std::uint64_t{1} << 30}) {
    WorldOptions options = linear_world(2);
    options.observe_from_bytes = observe_from;
    TrainingWorld world(config, options);
    world.let_join(2);
    world.let_die(0, 900, Death::kDuring);
    const WorldEnd end = world.run();
    EXPECT_EQ(end.outcome, elastic::Outcome::kDone) << end.detail;
    EXPECT_EQ(end.digests, alone.digests);
    EXPECT_EQ(end.sample_hashes, alone.sample_hashes);
    EXPECT_TRUE(end.contradictions.empty()) << end.contradictions.front();
    EXPECT_GE(end.views, 2u);
  }
}

}  // namespace
}  // namespace mayfly::engine
