#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "base/random.hpp"
#include "tests/unit/engine/trainer/training_world.hpp"

// Every step has the same bits as with one worker and no fault, no matter at which operation of a
// step workers die, and when other workers join.

namespace mayfly::engine {
namespace {

using test_support::Death;
using test_support::TrainingWorld;
using test_support::WorldEnd;

constexpr std::uint64_t kSteps = 5;

JobConfig small_job() {
  JobConfig config;
  config.data = "procedural:64";
  config.global_batch = 16;
  config.microbatch = 4;
  config.steps = kSteps;
  config.digest_every = 1;
  config.evaluate = false;
  return config;
}

/// The result of one worker without any fault.
const WorldEnd& undisturbed() {
  static const WorldEnd end = TrainingWorld(small_job(), {}).run();
  return end;
}

void expect_the_same(const WorldEnd& end, const std::string& what) {
  EXPECT_EQ(end.outcome, elastic::Outcome::kDone) << what << ": " << end.detail;
  EXPECT_EQ(end.digests, undisturbed().digests) << what;
  EXPECT_EQ(end.sample_hashes, undisturbed().sample_hashes) << what;
  EXPECT_TRUE(end.contradictions.empty()) << what << ": " << end.contradictions.front();
}

TEST(Trainer, AloneReportsEveryStep) {
  EXPECT_EQ(undisturbed().outcome, elastic::Outcome::kDone) << undisturbed().detail;
  EXPECT_EQ(undisturbed().digests.size(), kSteps);
  EXPECT_EQ(undisturbed().sample_hashes.size(), kSteps);
}

TEST(Trainer, AsksForAllImagesAhead) {
  EXPECT_EQ(undisturbed().unrequested, 0u);
  TrainingWorld world(small_job(), {.workers = 3});
  world.let_join(2);
  EXPECT_LE(world.run().unrequested, 4u) << "at most the queue of the step in which a view ends";
}

TEST(Trainer, OfSeveralWorkersGiveTheBitsOfOne) {
  for (const std::uint32_t workers : {2u, 3u}) {
    TrainingWorld world(small_job(), {.workers = workers});
    const WorldEnd end = world.run();
    expect_the_same(end, std::to_string(workers) + " workers");
    EXPECT_EQ(end.views, 1u);
  }
}

/// Parameters: the worker that dies, and how. Each test lets it die at every operation.
class TrainerLoses : public ::testing::TestWithParam<std::tuple<std::uint32_t, Death>> {};

TEST_P(TrainerLoses, AWorkerAtAnyOperation) {
  const auto [worker, death] = GetParam();
  std::uint64_t operations = 0;
  {
    TrainingWorld world(small_job(), {.workers = 3});
    const WorldEnd end = world.run();
    for (const auto& [member, count] : end.operations) {
      operations = std::max(operations, count);
    }
  }
  ASSERT_GT(operations, kSteps);
  for (std::uint64_t operation = 0; operation < operations; ++operation) {
    TrainingWorld world(small_job(), {.workers = 3});
    world.let_die(worker, operation, death);
    const WorldEnd end = world.run();
    expect_the_same(end, "operation " + std::to_string(operation));
    EXPECT_EQ(end.notes.count("evicted"), 0u) << "nobody else is blamed";
  }
}

/// A coordinator with standbys relies on it: a view to which a member gave nothing has no step.
/// With buckets that are tuned, members wait for each other before they begin the first step.
TEST(Trainer, ReportsWhetherItContributedToTheFirstStepOfItsView) {
  JobConfig config = small_job();
  config.bucket_kib = "auto";
  std::uint64_t operations = 0;
  {
    TrainingWorld world(config, {.workers = 3});
    const WorldEnd end = world.run();
    EXPECT_EQ(end.without_part, 0u);
    for (const auto& [member, count] : end.operations) {
      operations = std::max(operations, count);
    }
  }
  TrainingWorld before_all(config, {.workers = 3});
  before_all.let_die(2, 0, Death::kBefore);
  EXPECT_EQ(before_all.run().without_part, 2u) << "both others, of the first view";
  TrainingWorld after_steps(config, {.workers = 3});
  after_steps.let_die(2, operations - 1, Death::kBefore);
  EXPECT_EQ(after_steps.run().without_part, 0u) << "also not of a view that begins after all steps";
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::uint32_t, Death>>& info) {
  const auto [worker, death] = info.param;
  const char* const when = death == Death::kBefore   ? "before"
                           : death == Death::kDuring ? "during"
                                                     : "after";
  return "worker_" + std::to_string(worker) + "_" + when;
}

INSTANTIATE_TEST_SUITE_P(InEachWay, TrainerLoses,
                         ::testing::Combine(::testing::Values(0u, 1u, 2u),
                                            ::testing::Values(Death::kBefore, Death::kDuring,
                                                              Death::kAfter)),
                         name_of);

TEST(Trainer, GivesItsStateToWhoeverJoins) {
  for (const std::uint64_t observe_from : {std::uint64_t{1}, std::uint64_t{1} << 30}) {
    JobConfig config = small_job();
    config.steps = 12;
    const WorldEnd alone = TrainingWorld(config, {}).run();
    TrainingWorld world(config, {.workers = 2, .observe_from_bytes = observe_from});
    world.let_join(2);
    const WorldEnd end = world.run();
    EXPECT_EQ(end.outcome, elastic::Outcome::kDone) << end.detail;
    EXPECT_EQ(end.digests, alone.digests);
    EXPECT_EQ(end.sample_hashes, alone.sample_hashes);
    EXPECT_TRUE(end.contradictions.empty()) << end.contradictions.front();
    EXPECT_GT(end.views, 1u);
  }
}

TEST(Trainer, KeepsItsBitsThroughLossesAndJoinsByChance) {
  JobConfig config = small_job();
  config.steps = 10;
  const WorldEnd alone = TrainingWorld(config, {}).run();
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStream random{CounterRandom(seed)};
    const auto draw = [&random](std::uint64_t below) { return random.below(below); };
    TrainingWorld world(config, {.workers = 4, .observe_from_bytes = draw(2) == 0 ? 1u : 1u << 30});
    for (std::uint32_t worker = 1; worker <= 3; ++worker) {
      world.let_die(worker, draw(40), static_cast<Death>(draw(3)));
    }
    for (std::uint64_t joiners = draw(3); joiners > 0; --joiners) {
      world.let_join(1 + draw(config.steps - 1));
    }
    const WorldEnd end = world.run();
    EXPECT_EQ(end.outcome, elastic::Outcome::kDone) << end.detail;
    EXPECT_EQ(end.digests, alone.digests);
    EXPECT_EQ(end.sample_hashes, alone.sample_hashes);
    EXPECT_TRUE(end.contradictions.empty()) << end.contradictions.front();
  }
}

}  // namespace
}  // namespace mayfly::engine
