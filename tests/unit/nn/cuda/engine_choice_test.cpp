#include "nn/cuda/engine_choice.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace mayfly::nn::cuda {
namespace {

EngineTiming timing(std::int64_t index, std::vector<double> microseconds, bool agrees = true) {
  return {{index, {}}, std::move(microseconds), agrees};
}

std::int64_t chosen(const std::vector<EngineTiming>& timings) {
  return fastest_of(timings).engine.index;
}

TEST(EngineChoice, TheFastestByMedianIsTaken) {
  EXPECT_EQ(chosen({timing(1, {10, 10, 10}), timing(2, {7, 7, 30}), timing(3, {1, 9, 9})}), 2);
  const std::vector<EngineTiming> even = {timing(1, {10, 12}), timing(2, {4, 6, 8, 10})};
  const EngineEntry entry = fastest_of(even);
  EXPECT_EQ(entry.engine.index, 2);
  EXPECT_EQ(entry.microseconds, 7);
  EXPECT_EQ(entry.first_microseconds, 11);
}

TEST(EngineChoice, NoiseDoesNotReplaceTheFirst) {
  EXPECT_EQ(chosen({timing(1, {10}), timing(2, {9.8}), timing(3, {9.71})}), 1);
  EXPECT_EQ(chosen({timing(1, {10}), timing(2, {9.8}), timing(3, {9.6})}), 3);
  EXPECT_EQ(chosen({timing(1, {10}), timing(2, {5}), timing(3, {5})}), 2)
      << "the one offered first";
  EXPECT_EQ(chosen({timing(1, {10})}), 1);
}

TEST(EngineChoice, AnEngineWithAnotherResultIsNotTakenHoweverFast) {
  EXPECT_EQ(chosen({timing(1, {10}), timing(2, {1}, false), timing(3, {8})}), 3);
}

TEST(EngineChoice, ResultsAgreeWithinRoundingOnly) {
  const TrialResult first = {{100, -3, 0.5F, 0}};
  EXPECT_TRUE(agree(first, first, Dtype::kFp32));
  EXPECT_TRUE(agree(first, {{100.005F, -3, 0.5F, 0}}, Dtype::kFp32));
  const TrialResult rounded = {{101, -3, 0.5F, 0}};
  EXPECT_FALSE(agree(first, rounded, Dtype::kFp32));
  EXPECT_TRUE(agree(first, rounded, Dtype::kBf16));
  EXPECT_FALSE(agree(first, {{100, -3, 0.5F, 2}}, Dtype::kBf16));
  const float none = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(agree(first, {{100, -3, none, 0}}, Dtype::kBf16));
  EXPECT_FALSE(agree({{none}}, {{none}}, Dtype::kBf16));
}

TEST(EngineChoice, SumsAgreeMoreNarrowlyThanElements) {
  const TrialResult first = {{100, -3}, {1000, -2, 0}};
  EXPECT_TRUE(agree(first, {{101, -3}, {1001, -2, 0}}, Dtype::kFp16));
  EXPECT_FALSE(agree(first, {{101, -3}, {1003, -2, 0}}, Dtype::kFp16));
  EXPECT_FALSE(agree(first, {{104, -3}, {1000, -2, 0}}, Dtype::kFp16));
  EXPECT_FALSE(agree(first, {{100, -3}, {1000, -2, NAN}}, Dtype::kFp16));
}

/// Writes down what is asked of it.
class ScriptedTrial final : public EngineTrial {
 public:
  [[nodiscard]] std::vector<EngineName> engines() const override {
    return {{10, {}}, {11, {}}, {12, {}}};
  }
  Result<TrialResult> result(std::size_t engine) override {
    asked += "r" + std::to_string(engine) + " ";
    if (engine == refuses) {
      return Error{Errc::kUnsupported, "refused"};
    }
    return TrialResult{{engine == wrong ? 2.0F : 1.0F}};
  }
  Result<double> microseconds(std::size_t engine) override {
    asked += "t" + std::to_string(engine) + " ";
    if (engine == fails) {
      return Error{Errc::kUnsupported, "failed"};
    }
    return 100.0 * static_cast<double>(engine) + ++times;
  }

  std::string asked;
  std::size_t refuses = 9, wrong = 9, fails = 9;
  int times = 0;
};

TEST(EngineTrial, EnginesAreComparedAndThenTimedInTurns) {
  ScriptedTrial trial;
  trial.wrong = 2;
  const auto timings = time_in_turns(trial, 2, Dtype::kFp32);
  ASSERT_TRUE(timings.ok());
  EXPECT_EQ(trial.asked, "r0 r1 r2 t0 t1 t2 t0 t1 t2 ");
  ASSERT_EQ(timings.value().size(), 3U);
  EXPECT_EQ(timings.value()[1].engine.index, 11);
  EXPECT_EQ(timings.value()[1].microseconds, (std::vector<double>{102, 105}));
  EXPECT_TRUE(timings.value()[1].agrees);
  EXPECT_FALSE(timings.value()[2].agrees);
}

TEST(EngineTrial, AnEngineThatRefusesToRunIsLeftOut) {
  ScriptedTrial trial;
  trial.refuses = 1;
  const auto timings = time_in_turns(trial, 1, Dtype::kFp32);
  ASSERT_TRUE(timings.ok());
  EXPECT_EQ(trial.asked, "r0 r1 r2 t0 t2 ");
  ASSERT_EQ(timings.value().size(), 2U);
  EXPECT_EQ(timings.value()[1].engine.index, 12);
}

TEST(EngineTrial, WithoutTheFirstOrWithAFailureWhileTimingThereIsNoTable) {
  ScriptedTrial trial;
  trial.refuses = 0;
  EXPECT_EQ(time_in_turns(trial, 1, Dtype::kFp32).error().detail, "refused");
  trial.refuses = 9;
  trial.fails = 1;
  EXPECT_EQ(time_in_turns(trial, 1, Dtype::kFp32).error().detail, "failed");
}

TEST(EngineTrial, ConvolutionsAreTimedOneAfterTheOtherUntilNoMoreAreWanted) {
  const std::set<ConvKey> three = {
      {.shape = {.images = 1}}, {.shape = {.images = 2}}, {.shape = {.images = 3}}};
  std::int64_t made = 0;
  const TrialMaker make = [&made](const ConvKey& key) -> Result<std::unique_ptr<EngineTrial>> {
    made = key.shape.images;
    if (made == 3) {
      return Error{Errc::kUnsupported, "no memory"};
    }
    return std::unique_ptr<EngineTrial>(std::make_unique<ScriptedTrial>());
  };
  std::vector<std::int64_t> taken;
  const auto take = [&](const ConvKey& key, std::span<const EngineTiming> timings) {
    EXPECT_EQ(timings.size(), 3U);
    EXPECT_EQ(timings[0].microseconds.size(), 2U);
    taken.push_back(key.shape.images);
    return taken.size() < 2;
  };
  EXPECT_TRUE(time_each(three, 2, make, take).ok());
  EXPECT_EQ(taken, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(made, 2) << "of what is not wanted nothing is made";
  taken.clear();
  EXPECT_EQ(time_each({*three.rbegin()}, 2, make, take).error().detail, "no memory");
  EXPECT_TRUE(taken.empty());
}

}  // namespace
}  // namespace mayfly::nn::cuda
