#include "nn/cpu/cpu_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/unit/nn/engine_fixture.hpp"
#include "tests/unit/nn/reference_network.hpp"

namespace mayfly::nn::cpu {
namespace {

std::vector<double> as_doubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

double relative_error(std::span<const float> found, std::span<const double> expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference += std::pow(static_cast<double>(found[i]) - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

reference::Problem problem_of(const Fixture& fixture, double smoothing) {
  return {fixture.model, as_doubles(fixture.state.parameters.span()), as_doubles(fixture.images),
          fixture.labels, smoothing};
}

TEST(ReferenceNetwork, ItsGradientIsTheSlopeOfItsLoss) {
  const Fixture fixture("resnet20", 2);
  reference::Problem problem = problem_of(fixture, 0.1);
  const std::vector<double> gradient = reference::train(problem, true).gradient;
  for (const char* name : {"conv1.weight", "layer1.1.bn2.weight", "layer2.0.conv1.weight",
                           "layer3.2.bn1.bias", "fc.weight"}) {
    const auto& infos = fixture.model.parameters;
    const auto info = std::find_if(infos.begin(), infos.end(),
                                   [&](const TensorInfo& each) { return each.name == name; });
    const std::size_t at = info->offset + info->size / 2;
    constexpr double kStep = 1e-7;  // small, because a ReLU that flips within it bends the loss
    const double origin = problem.parameters[at];
    problem.parameters[at] = origin + kStep;
    const double above = reference::train(problem, false).loss;
    problem.parameters[at] = origin - kStep;
    const double below = reference::train(problem, false).loss;
    problem.parameters[at] = origin;
    EXPECT_NEAR((above - below) / (2 * kStep), gradient[at], 1e-5 + 1e-4 * std::abs(gradient[at]))
        << name;
  }
}

void expect_step_of_the_reference(const Fixture& fixture) {
  const Outcome found = fixture.train(*fixture.engine(), 0.1F);
  const reference::Step expected =
      reference::train(problem_of(fixture, static_cast<double>(0.1F)), true);
  EXPECT_NEAR(found.result.loss / expected.loss, 1.0, 1e-6);
  for (const TensorInfo& info : fixture.model.parameters) {
    const double error =
        relative_error(std::span(found.gradient).subspan(info.offset, info.size),
                       std::span(expected.gradient).subspan(info.offset, info.size));
    EXPECT_LT(error, 1e-4) << info.name;
  }
  EXPECT_LT(relative_error(found.statistics, expected.statistics), 1e-5);
}

TEST(CpuEngine, AgreesWithTheDoublePrecisionReference) {
  for (const int classes : {10, 100}) {
    expect_step_of_the_reference(Fixture("resnet20", 2, classes));
  }
}

// The last stage has images of 2x2 pixels, for which some instruction sets need a separate layout
// for the gradient of the weights.
TEST(CpuEngine, AgreesWithTheReferenceOnTheSmallestImages) {
  expect_step_of_the_reference(Fixture("resnet20", 16, 10, 8));
}

TEST(CpuEngine, EvaluatesAsTheReferenceDoes) {
  const Fixture fixture("resnet20", 3);
  const reference::Step expected =
      reference::evaluate(problem_of(fixture, 0), as_doubles(fixture.state.statistics.span()));
  double loss = 0;
  std::uint32_t correct = 0;
  for (std::size_t n = 0; n < 3; ++n) {
    const auto logits = std::span(expected.logits).subspan(n * 10, 10);
    const double top = *std::ranges::max_element(logits);
    double sum = 0;
    for (const double logit : logits) {
      sum += std::exp(logit - top);
    }
    loss += top + std::log(sum) - logits[fixture.labels[n]];
    correct += logits[fixture.labels[n]] == top ? 1U : 0U;
  }
  const EvaluationResult found = fixture.engine()->evaluate(fixture.weights(), fixture.batch());
  EXPECT_NEAR(found.loss_sum / loss, 1.0, 1e-5);
  EXPECT_EQ(found.correct, correct);
}

TEST(CpuEngine, ARerunAndAFreshEngineGiveTheSameBits) {
  const Fixture fixture("resnet32", 4);
  const auto engine = fixture.engine();
  const Outcome first = fixture.train(*engine);
  EXPECT_TRUE(first == fixture.train(*engine));
  engine->evaluate(fixture.weights(), fixture.batch());
  EXPECT_TRUE(first == fixture.train(*engine)) << "evaluation leaves traces";
  EXPECT_TRUE(first == fixture.train(*fixture.engine()));
}

TEST(CpuEngine, ConcurrentThreadsGiveTheBitsOfOneAlone) {
  const Fixture fixture("resnet20", 16);
  const Outcome alone = fixture.train(*fixture.engine());
  constexpr int kRounds = 3;
  std::vector<std::vector<Outcome>> outcomes(2);
  std::vector<std::thread> threads;
  for (std::vector<Outcome>& mine : outcomes) {
    threads.emplace_back([&fixture, &mine] {
      const auto engine = fixture.engine();
      for (int round = 0; round < kRounds; ++round) {
        mine.push_back(fixture.train(*engine));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::vector<Outcome>& mine : outcomes) {
    for (const Outcome& outcome : mine) {
      EXPECT_TRUE(outcome == alone);
    }
  }
}

TEST(CpuEngine, ReloadsWeightsOnlyWhenTheVersionChanges) {
  Fixture fixture("resnet20", 2);
  const auto engine = fixture.engine();
  const Outcome before = fixture.train(*engine, 0.0F, 1);
  fixture.state = random_state(fixture.model, 99);
  const Outcome after = fixture.train(*engine, 0.0F, 2);
  EXPECT_FALSE(before == after);
  EXPECT_TRUE(after == fixture.train(*fixture.engine(), 0.0F, 2));
}

TEST(CpuEngine, ReadyOffsetsFallFromTheClassifierToZeroOnTensorBorders) {
  const Fixture fixture("resnet20", 2);
  std::vector<float> gradient(fixture.model.parameter_count);
  std::vector<float> statistics(fixture.model.statistic_count);
  RecordingSink sink;
  fixture.engine()->train(fixture.weights(), fixture.batch(), 0, gradient, statistics, sink);
  ASSERT_EQ(sink.offsets().size(), 1 + 2 * fixture.model.blocks.size() + 1);
  std::size_t last = fixture.model.parameter_count;
  for (const std::size_t offset : sink.offsets()) {
    EXPECT_LT(offset, last);
    last = offset;
    EXPECT_TRUE(std::ranges::any_of(fixture.model.parameters, [&](const TensorInfo& info) {
      return info.offset == offset;
    })) << offset;
  }
  EXPECT_EQ(last, 0U);
}

/// Compares, at each announcement, the announced part with the final gradient of an earlier run.
class FinalitySink final : public GradientSink {
 public:
  FinalitySink(std::span<const float> gradient, std::span<const float> final)
      : gradient_(gradient), final_(final) {}
  void ready_from(std::size_t offset) override {
    const std::size_t bytes = (gradient_.size() - offset) * sizeof(float);
    all_final_ =
        all_final_ && std::memcmp(gradient_.data() + offset, final_.data() + offset, bytes) == 0;
  }
  [[nodiscard]] bool all_final() const { return all_final_; }

 private:
  std::span<const float> gradient_;
  std::span<const float> final_;
  bool all_final_ = true;
};

TEST(CpuEngine, AnAnnouncedGradientDoesNotChangeAnyMore) {
  const Fixture fixture("resnet20", 2);
  const auto engine = fixture.engine();
  const Outcome expected = fixture.train(*engine);
  std::vector<float> gradient(fixture.model.parameter_count, NAN);
  std::vector<float> statistics(fixture.model.statistic_count);
  FinalitySink sink(gradient, expected.gradient);
  engine->train(fixture.weights(), fixture.batch(), 0.1F, gradient, statistics, sink);
  EXPECT_TRUE(sink.all_final());
}

TEST(CpuEngine, EvaluationOfASampleDoesNotDependOnItsCompany) {
  const Fixture fixture("resnet20", 5);
  const auto engine = fixture.engine();
  const std::span<const float> images(fixture.images);
  const std::span<const std::uint16_t> labels(fixture.labels);
  constexpr std::size_t kImage = 3 * 32 * 32;
  const auto evaluate = [&](std::size_t first, std::size_t count) {
    return engine->evaluate(fixture.weights(), {images.subspan(first * kImage, count * kImage),
                                                labels.subspan(first, count)});
  };
  EvaluationResult one_by_one;
  for (std::size_t n = 0; n < 5; ++n) {
    const EvaluationResult single = evaluate(n, 1);
    one_by_one.loss_sum += single.loss_sum;
    one_by_one.correct += single.correct;
  }
  const EvaluationResult together = evaluate(0, 5);
  EXPECT_EQ(together.loss_sum, one_by_one.loss_sum);
  EXPECT_EQ(together.correct, one_by_one.correct);
}

TEST(CpuEngine, AnOverflowShowsInTheLoss) {
  Fixture fixture("resnet20", 2);
  fixture.state.parameters[fixture.model.parameter_count - 1] = INFINITY;
  EXPECT_FALSE(std::isfinite(fixture.train(*fixture.engine()).result.loss));
  fixture.state = random_state(fixture.model, 5);
  fixture.state.parameters[3] = NAN;
  EXPECT_TRUE(std::isnan(fixture.train(*fixture.engine()).result.loss));
}

TEST(CpuEngine, AnImpossibleMicrobatchIsRefused) {
  const Model model = make_model("resnet20", 10).value();
  EXPECT_EQ(make_cpu_engine(model, 0).error().code, Errc::kInvalidInput);
}

TEST(CpuEngine, WhatTheHostCannotHoldIsRefusedWithWhatToDo) {
  const Model model = make_model("resnet50", 1000, 2048).value();
  const Result<std::unique_ptr<StepEngine>> engine = make_cpu_engine(model, 4096);  // needs 20 TiB
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, Errc::kUnsupported);
  EXPECT_NE(engine.error().detail.find("lower --microbatch"), std::string::npos)
      << engine.error().detail;
}

TEST(SelectIsa, RefusesUnknownNamesAndLaterChanges) {
  EXPECT_EQ(select_isa("mmx").error().code, Errc::kInvalidInput);
  const std::string current =
      select_isa(std::getenv("MAYFLY_TEST_ISA") != nullptr ? std::getenv("MAYFLY_TEST_ISA")
                                                           : "auto")
          .value();
  EXPECT_EQ(select_isa(current).value(), current);
  EXPECT_FALSE(select_isa(current == "avx2" ? "avx512" : "avx2").ok());
}

}  // namespace
}  // namespace mayfly::nn::cpu

// The environment selects the instruction set, which is fixed before the first engine. So one
// program can test each set in a separate run.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* const isa = std::getenv("MAYFLY_TEST_ISA");
  const auto selected = mayfly::nn::cpu::select_isa(isa != nullptr ? isa : "auto");
  if (!selected.ok()) {
    std::printf("skipped: %s\n", selected.error().detail.c_str());
    return 77;
  }
  std::printf("instruction set: %s\n", selected.value().c_str());
  return RUN_ALL_TESTS();
}
