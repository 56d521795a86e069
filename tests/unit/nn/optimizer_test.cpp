#include "nn/optimizer.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <random>

namespace mayfly::nn {
namespace {

std::vector<float> random_floats(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& v : values) {
    v = normal(random);
  }
  return values;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
      return false;
    }
  }
  return a.size() == b.size();
}

// Runs `check` once for every instruction set that this processor has and this build contains.
template <typename Check>
void on_every_target(Check check) {
  std::int64_t targets = hwy::SupportedTargets();
  while (targets != 0) {
    const std::int64_t target = targets & -targets;
    targets &= targets - 1;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

TEST(SgdUpdate, EqualsTheScalarDefinitionBitForBitOnEveryInstructionSet) {
  const SgdOptions options{0.9F, 1e-4F};
  for (const std::size_t size : {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 1000, 4099}) {
    const std::vector<float> gradient = random_floats(size, 1);
    const std::vector<float> parameters = random_floats(size, 2);
    const std::vector<float> momentum = random_floats(size, 3);
    std::vector<float> expected_w = parameters;
    std::vector<float> expected_v = momentum;
    for (std::size_t i = 0; i < size; ++i) {
      const float decayed = std::fma(options.weight_decay, expected_w[i], gradient[i]);
      expected_v[i] = std::fma(options.momentum, expected_v[i], decayed);
      expected_w[i] = std::fma(-0.05F, expected_v[i], expected_w[i]);
    }
    on_every_target([&] {
      std::vector<float> w = parameters;
      std::vector<float> v = momentum;
      sgd_update(options, 0.05F, gradient, w, v);
      EXPECT_TRUE(same_bits(w, expected_w)) << "size " << size;
      EXPECT_TRUE(same_bits(v, expected_v)) << "size " << size;
    });
  }
}

TEST(SgdUpdate, GivesTheSameBitsForAnyCutOfTheArray) {
  constexpr std::size_t kSize = 517;
  const std::vector<float> gradient = random_floats(kSize, 4);
  std::vector<float> whole_w = random_floats(kSize, 5);
  std::vector<float> whole_v = random_floats(kSize, 6);
  const std::vector<float> w = whole_w;
  const std::vector<float> v = whole_v;
  sgd_update({}, 0.1F, gradient, whole_w, whole_v);
  for (std::size_t cut = 0; cut <= kSize; cut += 13) {
    std::vector<float> cut_w = w;
    std::vector<float> cut_v = v;
    const auto update = [&](std::size_t from, std::size_t size) {
      sgd_update({}, 0.1F, std::span(gradient).subspan(from, size),
                 std::span(cut_w).subspan(from, size), std::span(cut_v).subspan(from, size));
    };
    update(0, cut);
    update(cut, kSize - cut);
    ASSERT_TRUE(same_bits(cut_w, whole_w)) << "cut " << cut;
    ASSERT_TRUE(same_bits(cut_v, whole_v)) << "cut " << cut;
  }
}

// Two steps by hand: w = 1, g = 0.5 each time, momentum 0.5, decay 0.1, rate 0.2.
TEST(SgdUpdate, FollowsTorchsMomentumRule) {
  const std::vector<float> gradient = {0.5F};
  std::vector<float> w = {1.0F};
  std::vector<float> v = {0.0F};
  sgd_update({0.5F, 0.1F}, 0.2F, gradient, w, v);
  EXPECT_FLOAT_EQ(v[0], 0.6F);
  EXPECT_FLOAT_EQ(w[0], 0.88F);
  sgd_update({0.5F, 0.1F}, 0.2F, gradient, w, v);
  EXPECT_FLOAT_EQ(v[0], 0.3F + 0.5F + 0.088F);
  EXPECT_FLOAT_EQ(w[0], 0.88F - 0.2F * 0.888F);
}

TEST(RunningStatistics, EqualTheScalarDefinitionOnEveryInstructionSet) {
  for (const std::size_t size : {1, 5, 16, 19, 64, 129}) {
    const std::vector<float> batch = random_floats(size, 7);
    const std::vector<float> before = random_floats(size, 8);
    std::vector<float> expected = before;
    for (std::size_t i = 0; i < size; ++i) {
      const volatile float kept = (1.0F - 0.1F) * expected[i];  // rounded before the addition
      expected[i] = std::fma(0.1F, batch[i], kept);
    }
    on_every_target([&] {
      std::vector<float> running = before;
      update_running_statistics(0.1F, batch, running);
      EXPECT_TRUE(same_bits(running, expected)) << "size " << size;
    });
  }
}

Schedule schedule_of(ScheduleKind kind) {
  Schedule schedule;
  schedule.kind = kind;
  schedule.base = 0.1;
  schedule.warmup_steps = 10;
  schedule.total_steps = 110;
  return schedule;
}

TEST(LearningRate, RisesLinearlyDuringWarmUpForEveryKind) {
  for (const auto kind : {ScheduleKind::kConstant, ScheduleKind::kCosine, ScheduleKind::kStep}) {
    const Schedule schedule = schedule_of(kind);
    for (std::uint64_t step = 1; step <= 10; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate_at(schedule, step), 0.01 * static_cast<double>(step));
    }
  }
}

TEST(LearningRate, CosineFallsFromBaseToZeroAfterTheLastStep) {
  const Schedule schedule = schedule_of(ScheduleKind::kCosine);
  double last = 1;
  for (std::uint64_t step = 11; step <= 110; ++step) {
    const double rate = learning_rate_at(schedule, step);
    const double t = static_cast<double>(step - 11) / 100;
    EXPECT_NEAR(rate, 0.05 * (1 + std::cos(M_PI * t)), 1e-15);
    EXPECT_LT(rate, last);
    last = rate;
  }
  EXPECT_EQ(learning_rate_at(schedule, 11), 0.1);
  EXPECT_GT(learning_rate_at(schedule, 110), 0.0) << "the last step trains, too";
  EXPECT_EQ(learning_rate_at(schedule, 111), 0.0);
  EXPECT_NEAR(learning_rate_at(schedule, 61), 0.05, 1e-17);
}

TEST(LearningRate, AJobOfOneStepTrains) {
  Schedule schedule;
  schedule.total_steps = 1;
  EXPECT_EQ(learning_rate_at(schedule, 1), schedule.base);
}

TEST(LearningRate, StepDropsAfterEachFraction) {
  Schedule schedule = schedule_of(ScheduleKind::kStep);
  schedule.step_at = {0.5, 0.75};
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 55), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 56), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 82), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 83), 0.001);
}

TEST(LearningRate, ConstantStays) {
  Schedule schedule = schedule_of(ScheduleKind::kConstant);
  schedule.warmup_steps = 0;
  EXPECT_EQ(learning_rate_at(schedule, 1), 0.1);
  EXPECT_EQ(learning_rate_at(schedule, 1'000'000), 0.1);
}

TEST(LearningRate, SurvivesAWarmUpAsLongAsTheTraining) {
  Schedule schedule = schedule_of(ScheduleKind::kCosine);
  schedule.warmup_steps = 110;
  EXPECT_EQ(learning_rate_at(schedule, 110), 0.1);
  EXPECT_EQ(learning_rate_at(schedule, 111), 0.0);
}

TEST(ScheduleKind, ParsesItsThreeNamesOnly) {
  EXPECT_EQ(parse_schedule_kind("constant").value(), ScheduleKind::kConstant);
  EXPECT_EQ(parse_schedule_kind("cosine").value(), ScheduleKind::kCosine);
  EXPECT_EQ(parse_schedule_kind("step").value(), ScheduleKind::kStep);
  const Result<ScheduleKind> unknown = parse_schedule_kind("cosin");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Errc::kInvalidInput);
  EXPECT_NE(unknown.error().detail.find("cosin"), std::string::npos);
}

}  // namespace
}  // namespace mayfly::nn
