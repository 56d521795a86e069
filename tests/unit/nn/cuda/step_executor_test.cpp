// Compares the CUDA step with the CPU's. It uses the plan and the executor of a GPU, with the host
// versions of the kernels and convolutions in plain loops.

#include "nn/cuda/step_executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/nn/cuda/reference_executor.hpp"
#include "tests/unit/nn/cuda/set_problem.hpp"
#include "tests/unit/nn/cuda/step_problem.hpp"

namespace mayfly::nn::cuda {
namespace {

class StepExecutorOf : public testing::TestWithParam<std::tuple<const char*, int, int>> {
 protected:
  Problem problem{std::get<0>(GetParam()), std::get<1>(GetParam()),
                  static_cast<std::uint32_t>(std::get<2>(GetParam()))};
};

TEST_P(StepExecutorOf, TrainsAndEvaluatesAsTheCpuDoes) {
  problem.decide_relus();
  const auto cpu = cpu::make_cpu_engine(problem.model, problem.images()).value();
  const Outcome expected = problem.train(*cpu);
  ReferenceExecutor engine(problem.model, problem.images(), {.segment_elements = 10'000});
  const Outcome found = problem.train(engine);
  EXPECT_NEAR(found.result.loss / expected.result.loss, 1.0, 1e-5);
  EXPECT_EQ(found.result.correct, expected.result.correct);
  EXPECT_LT(relative_error(found.gradient, expected.gradient), 1e-4);
  EXPECT_LT(relative_error(found.statistics, expected.statistics), 1e-5);
  // A later norm removes the whole effect of some shifts, so the gradient of these is noise.
  const double noise = 1e-5 * norm_of(expected.gradient);
  for (const TensorInfo& info : problem.model.parameters) {
    const auto right = std::span(expected.gradient).subspan(info.offset, info.size);
    EXPECT_LT(distance(std::span(found.gradient).subspan(info.offset, info.size), right),
              1e-3 * norm_of(right) + noise)
        << info.name;
  }
  std::ranges::copy(expected.statistics, problem.state.statistics.data());  // as after many steps
  for (const std::size_t count : {std::size_t{1}, problem.labels.size()}) {
    const EvaluationResult right = cpu->evaluate(problem.weights(2), problem.batch(0, count));
    const EvaluationResult same = engine.evaluate(problem.weights(2), problem.batch(0, count));
    EXPECT_NEAR(same.loss_sum / right.loss_sum, 1.0, 1e-4);
    EXPECT_EQ(same.correct, right.correct);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, StepExecutorOf,
    testing::Values(std::tuple{"resnet20", 32, 4}, std::tuple{"resnet32", 20, 3},
                    std::tuple{"resnet18", 64, 4}, std::tuple{"resnet34", 32, 6},
                    std::tuple{"resnet50", 64, 3}),
    [](const auto& each) {
      return std::string(std::get<0>(each.param)) + "_" + std::to_string(std::get<1>(each.param));
    });

TEST(StepExecutor, TrainsAsTheCpuDoesWhereReLUsAreUndecided) {
  for (const auto& [name, size, images, error] :
       {std::tuple{"resnet20", 20, 3U, 1e-4}, std::tuple{"resnet18", 32, 6U, 0.05}}) {
    const Problem problem(name, size, images);
    const Outcome expected = problem.train(*cpu::make_cpu_engine(problem.model, images).value());
    ReferenceExecutor engine(problem.model, images);
    const Outcome found = problem.train(engine);
    EXPECT_NEAR(found.result.loss / expected.result.loss, 1.0, 1e-4) << name;
    EXPECT_LT(relative_error(found.gradient, expected.gradient), error) << name;
  }
}

TEST(StepExecutor, BitsDependNeitherOnWhatWasComputedBeforeNorOnSegments) {
  const Problem problem("resnet20", 16, 3);
  ReferenceExecutor engine(problem.model, 3);
  const Outcome first = problem.train(engine);
  (void)engine.evaluate(problem.weights(), problem.batch(0, 2));
  EXPECT_TRUE(problem.train(engine) == first);
  ReferenceExecutor fine(problem.model, 3, {.segment_elements = 1});
  EXPECT_TRUE(problem.train(fine) == first);
}

TEST(StepExecutor, AnAnnouncedGradientDoesNotChangeAnyMore) {
  // The reference copies a part when it is announced, as the GPU's engine does. If a part was not
  // final, TrainsAndEvaluatesAsTheCpuDoes would find NaN or older numbers. This test checks that
  // the announced offsets are borders of tensors, down to 0.
  const Problem problem("resnet20", 16, 3);
  ReferenceExecutor engine(problem.model, 3, {.segment_elements = 20'000});
  std::vector<float> gradient(problem.model.parameter_count);
  std::vector<float> statistics(problem.model.statistic_count);
  RecordingSink sink;
  (void)engine.train(problem.weights(), problem.batch(0, 3), 0, gradient, statistics, sink);
  ASSERT_GT(sink.offsets().size(), 3U);
  std::size_t last = problem.model.parameter_count;
  for (const std::size_t offset : sink.offsets()) {
    EXPECT_LT(offset, last);
    last = offset;
    EXPECT_TRUE(std::ranges::any_of(problem.model.parameters, [&](const TensorInfo& info) {
      return info.offset == offset;
    })) << offset;
  }
  EXPECT_EQ(last, 0U);
}

TEST(StepExecutor, EvaluationOfASampleDoesNotDependOnItsCompany) {
  const Problem problem("resnet20", 16, 3);
  ReferenceExecutor engine(problem.model, 3);
  double loss = 0;
  for (std::size_t n = 0; n < 3; ++n) {
    loss += engine.evaluate(problem.weights(), problem.batch(n, 1)).loss_sum;
  }
  EXPECT_DOUBLE_EQ(engine.evaluate(problem.weights(), problem.batch(0, 3)).loss_sum, loss);
}

TEST(StepExecutor, In16BitsItStaysNearFp32) {
  for (const auto& [name, size] : {std::pair{"resnet20", 32}, std::pair{"resnet18", 32}}) {
    Problem problem(name, size, 8);
    problem.decide_relus();
    ReferenceExecutor full(problem.model, 8);
    const Outcome expected = problem.train(full);
    // fp16 has three bits more, but not eight times fewer places where a ReLU decides otherwise.
    for (const auto& [dtype, finer] :
         {std::pair{Dtype::kBf16, 1.0}, std::pair{Dtype::kFp16, 5.0}}) {
      problem.loss_scale = dtype == Dtype::kFp16 ? 0x1p10F : 1.0F;
      ReferenceExecutor half(problem.model, 8, {.dtype = dtype});
      const Outcome found = problem.train(half);
      EXPECT_NEAR(found.result.loss / expected.result.loss, 1.0, 0.03 / finer) << name;
      EXPECT_LT(relative_error(found.gradient, expected.gradient), 0.1 / finer) << name;
      EXPECT_LT(relative_error(found.statistics, expected.statistics), 0.02 / finer) << name;
    }
  }
}

/// A power of two changes only exponents, as long as no number overflows or underflows.
TEST(StepExecutor, TheLossScaleChangesNoBitInFp32) {
  for (const auto& [name, size] : {std::pair{"resnet20", 20}, std::pair{"resnet50", 32}}) {
    Problem problem(name, size, 3);
    ReferenceExecutor engine(problem.model, 3);
    const Outcome plain = problem.train(engine);
    for (const float scale : {0x1p16F, 0x1p24F}) {
      problem.loss_scale = scale;
      EXPECT_TRUE(problem.train(engine) == plain) << name;
    }
  }
}

TEST(StepExecutor, InFp16TheLossScaleKeepsSmallGradients) {
  Problem problem("resnet20", 32, 4);
  problem.decide_relus();
  // With small weights of the classifier, the gradients of all layers before it are small.
  const TensorInfo& weight = problem.model.parameters[problem.model.classifier_weight];
  for (std::size_t i = 0; i < weight.size; ++i) {
    problem.state.parameters[weight.offset + i] *= 0x1p-10F;
  }
  ReferenceExecutor full(problem.model, 4);
  ReferenceExecutor half(problem.model, 4, {.dtype = Dtype::kFp16});
  const std::vector<float> expected = problem.train(full).gradient;
  const std::size_t before = weight.offset;
  const auto error = [&](float scale) {
    problem.loss_scale = scale;
    const Outcome found = problem.train(half);
    return relative_error(std::span(found.gradient).first(before),
                          std::span(expected).first(before));
  };
  EXPECT_GT(error(1), 0.2);
  EXPECT_LT(error(0x1p16F), 0.01);
}

TEST(StepExecutor, InFp16ATooLargeLossScaleShowsInTheGradient) {
  Problem problem("resnet20", 32, 4);
  problem.loss_scale = 0x1p24F;
  ReferenceExecutor half(problem.model, 4, {.dtype = Dtype::kFp16});
  const Outcome found = problem.train(half);
  EXPECT_TRUE(std::isfinite(found.result.loss));
  EXPECT_FALSE(std::ranges::all_of(found.gradient, [](float g) { return std::isfinite(g); }));
}

TEST(StepExecutor, ImagesLookedUpOnTheDeviceGiveTheSameBits) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    for (const bool augment : {true, false}) {
      const SetProblem problem("resnet20", 20, 5, augment);
      ReferenceExecutor from_host(problem.model, 5, {.dtype = dtype});
      ReferenceExecutor looked_up(problem.model, 5, {.dtype = dtype, .set = problem.set.resident});
      looked_up.take_training_set(problem.set);
      const Outcome expected = problem.train(from_host);
      EXPECT_TRUE(problem.train_by_draws(looked_up) == expected);
      const EvaluationResult right = from_host.evaluate(problem.weights(), problem.batch(0, 3));
      const EvaluationResult same = looked_up.evaluate(problem.weights(), problem.batch(0, 3));
      EXPECT_EQ(same.loss_sum, right.loss_sum);
      EXPECT_TRUE(problem.train_by_draws(looked_up) == expected) << "after an evaluation";
    }
  }
}

TEST(StepExecutor, ANumberThatIsNoneShowsInTheLoss) {
  Problem problem("resnet20", 16, 2);
  problem.state.parameters[3] = NAN;
  ReferenceExecutor engine(problem.model, 2);
  EXPECT_TRUE(std::isnan(problem.train(engine).result.loss));
}

}  // namespace
}  // namespace mayfly::nn::cuda

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto selected = mayfly::nn::cpu::select_isa("auto");
  return selected.ok() ? RUN_ALL_TESTS() : 1;
}
