// gpu_step_tests compares the CUDA engine on a GPU with the same plan executed on the CPU. It is
// one program beside libmayfly_cuda.so, so that both can be copied to a machine with a GPU. Without
// a GPU it prints "no GPU: ..." and ends with exit code 0.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "base/module_file.hpp"
#include "nn/cuda/cuda_module.hpp"
#include "nn/device_engine.hpp"
#include "tests/unit/nn/cuda/reference_executor.hpp"
#include "tests/unit/nn/cuda/set_problem.hpp"
#include "tests/unit/nn/cuda/step_problem.hpp"

namespace mayfly::nn::cuda {
namespace {

const CudaModule* g_module = nullptr;  // set by main

struct Case {
  const char* model;
  int image_size;
  std::uint32_t images;
  Dtype dtype;
  double gradient_error;
};

class GpuStepOf : public testing::TestWithParam<Case> {
 protected:
  GpuStepOf() {
    problem.decide_relus();
    problem.loss_scale = GetParam().dtype == Dtype::kFp16 ? 0x1p10F : 1.0F;
  }

  std::unique_ptr<DeviceEngine> engine() {
    auto made = g_module->make(
        problem.model, {.microbatch = GetParam().images, .dtype = GetParam().dtype, .device = 0});
    EXPECT_TRUE(made.ok()) << made.error().detail;
    return made.ok() ? std::move(made).value() : nullptr;
  }

  Problem problem{GetParam().model, GetParam().image_size, GetParam().images};
};

TEST_P(GpuStepOf, TrainsAndEvaluatesAsThePlanDoesOnTheHost) {
  const auto gpu = engine();
  ASSERT_NE(gpu, nullptr);
  ReferenceExecutor host(problem.model, GetParam().images, {.dtype = GetParam().dtype});
  const Outcome expected = problem.train(host);
  const Outcome found = problem.train(*gpu);
  const double error = GetParam().gradient_error;
  EXPECT_NEAR(found.result.loss / expected.result.loss, 1.0, error);
  EXPECT_LT(relative_error(found.gradient, expected.gradient), error);
  EXPECT_LT(relative_error(found.statistics, expected.statistics), error);
  std::ranges::copy(expected.statistics, problem.state.statistics.data());
  for (const std::size_t count : {std::size_t{1}, problem.labels.size()}) {
    const EvaluationResult right = host.evaluate(problem.weights(2), problem.batch(0, count));
    const EvaluationResult same = gpu->evaluate(problem.weights(2), problem.batch(0, count));
    EXPECT_NEAR(same.loss_sum / right.loss_sum, 1.0, error);
  }
}

TEST_P(GpuStepOf, BitsAreThoseOfAnyOtherRun) {
  const auto one = engine();
  const auto other = engine();
  ASSERT_TRUE(one != nullptr && other != nullptr);
  const Outcome first = problem.train(*one);
  (void)one->evaluate(problem.weights(), problem.batch(0, 1));
  EXPECT_TRUE(problem.train(*one) == first);
  EXPECT_TRUE(problem.train(*other) == first);
}

TEST_P(GpuStepOf, AGradientMayStayAndChangesNothingElse) {
  const auto gpu = engine();
  ASSERT_NE(gpu, nullptr);
  EXPECT_NE(gpu->gradient().gradient, nullptr);
  const Outcome brought = problem.train(*gpu);
  std::vector<float> statistics(problem.model.statistic_count);
  RecordingSink sink;
  const TrainResult stayed = gpu->train(problem.weights(), problem.batch(0, problem.labels.size()),
                                        0.1F, {}, statistics, sink);
  EXPECT_EQ(stayed.loss, brought.result.loss);
  EXPECT_EQ(stayed.correct, brought.result.correct);
  EXPECT_EQ(statistics, brought.statistics);
  ASSERT_FALSE(sink.offsets().empty());
  EXPECT_EQ(sink.offsets().back(), 0U);
  EXPECT_TRUE(problem.train(*gpu) == brought);
}

INSTANTIATE_TEST_SUITE_P(Networks, GpuStepOf,
                         testing::Values(Case{"resnet20", 32, 8, Dtype::kFp32, 1e-3},
                                         Case{"resnet20", 32, 8, Dtype::kBf16, 0.1},
                                         Case{"resnet20", 32, 8, Dtype::kFp16, 0.02},
                                         Case{"resnet18", 64, 8, Dtype::kFp32, 1e-3},
                                         Case{"resnet18", 64, 8, Dtype::kBf16, 0.1},
                                         Case{"resnet18", 64, 8, Dtype::kFp16, 0.02},
                                         Case{"resnet50", 64, 8, Dtype::kFp32, 2e-3},
                                         Case{"resnet50", 64, 8, Dtype::kBf16, 0.2},
                                         Case{"resnet50", 64, 8, Dtype::kFp16, 0.05}),
                         [](const auto& each) {
                           return std::string(each.param.model) + "_" + name_of(each.param.dtype);
                         });

TEST(GpuStep, ImagesLookedUpOnTheDeviceAreThoseOfTheHost) {
  for (const bool augment : {true, false}) {
    const SetProblem problem("resnet20", 32, 8, augment);
    auto with =
        g_module->make(problem.model, {.microbatch = 8, .device = 0, .training_set = &problem.set});
    ASSERT_TRUE(with.ok()) << with.error().detail;
    ASSERT_TRUE(with.value()->holds_training_set());
    auto without = g_module->make(problem.model, {.microbatch = 8, .device = 0});
    ASSERT_TRUE(without.ok()) << without.error().detail;
    EXPECT_TRUE(problem.train_by_draws(*with.value()) == problem.train(*without.value()));
  }
}

TEST(GpuStep, ImagesThatWereBroughtAheadAreThoseThatComeWhenTheyAreWanted) {
  const Problem problem("resnet20", 32, 4);
  Problem other("resnet20", 32, 4);  // the same weights
  std::ranges::reverse(other.pixels);
  auto made = g_module->make(problem.model, {.microbatch = 4, .device = 0});
  ASSERT_TRUE(made.ok()) << made.error().detail;
  DeviceEngine& gpu = *made.value();
  ASSERT_FALSE(gpu.holds_training_set());
  const Outcome right = problem.train(gpu);
  const Outcome right_other = other.train(gpu);
  ASSERT_FALSE(right == right_other);
  const auto expect = [&gpu](const Problem& next, std::uint64_t id) {
    Batch batch = next.batch(0, 4);
    batch.id = id;
    gpu.prefetch(batch);
  };
  for (std::uint64_t id = 1; id < 6; id += 2) {
    expect(other, id);
    EXPECT_TRUE(problem.train(gpu) == right) << "beside the copy of the next images";
    expect(problem, id + 1);
    EXPECT_TRUE(other.train(gpu, 1, id) == right_other);
    EXPECT_TRUE(problem.train(gpu, 1, id + 1) == right);
  }
}

TEST(GpuStep, UpdatesTheStateToTheBitsOfTheHost) {
  Problem problem("resnet20", 32, 4);
  const std::size_t count = problem.model.parameter_count;
  auto made = g_module->make(problem.model, {.microbatch = 4, .device = 0, .keeps_state = true});
  ASSERT_TRUE(made.ok()) << made.error().detail;
  DeviceEngine& gpu = *made.value();
  DeviceOptimizer* const optimizer = gpu.optimizer();
  ASSERT_NE(optimizer, nullptr);
  ASSERT_EQ(optimizer->mean_gradient(), gpu.gradient().gradient);
  constexpr float kRate = 0.1F;
  for (const std::uint64_t version : {1U, 2U, 3U}) {
    const Outcome outcome = problem.train(gpu, version);
    std::ranges::copy(outcome.statistics, problem.state.statistics.data());
    optimizer->update({.weights = problem.weights(version),
                       .momentum = problem.state.momentum.span(),
                       .options = {},
                       .learning_rate = kRate,
                       .version = version + 1});
    sgd_update({}, kRate, outcome.gradient, problem.state.parameters.span(),
               problem.state.momentum.span());
    std::vector<float> parameters(count);
    std::vector<float> momentum(count / 2);
    optimizer->fetch(DevicePart::kParameters, 0, parameters);
    optimizer->fetch(DevicePart::kMomentum, count - momentum.size(), momentum);
    EXPECT_TRUE(std::ranges::equal(parameters, problem.state.parameters.span()));
    EXPECT_TRUE(std::ranges::equal(momentum, problem.state.momentum.span().last(momentum.size())));
    // The engine computes with the weights that it has updated.
    const EvaluationResult here = gpu.evaluate(problem.weights(version + 1), problem.batch(0, 4));
    const EvaluationResult again = gpu.evaluate(problem.weights(100), problem.batch(0, 4));
    EXPECT_EQ(here.loss_sum, again.loss_sum) << "the host's copy has the same bits";
    (void)gpu.evaluate(problem.weights(version + 1), problem.batch(0, 4));
  }
}

TEST(GpuStep, WithoutBeingAskedToItKeepsNoState) {
  const Problem problem("resnet20", 32, 4);
  auto made = g_module->make(problem.model, {.microbatch = 4, .device = 0});
  ASSERT_TRUE(made.ok()) << made.error().detail;
  EXPECT_EQ(made.value()->optimizer(), nullptr);
}

TEST(GpuStep, NewWeightsAreUsedWhenTheirVersionChanges) {
  Problem problem("resnet20", 32, 4);
  auto made = g_module->make(problem.model, {.microbatch = 4, .device = 0});
  ASSERT_TRUE(made.ok()) << made.error().detail;
  const Outcome before = problem.train(*made.value());
  problem.state = cpu::random_state(problem.model, 99);
  const EvaluationResult changed = made.value()->evaluate(problem.weights(2), problem.batch(0, 4));
  ReferenceExecutor host(problem.model, 4);
  const EvaluationResult right = host.evaluate(problem.weights(2), problem.batch(0, 4));
  EXPECT_NEAR(changed.loss_sum / right.loss_sum, 1.0, 1e-3);
  EXPECT_FALSE(problem.train(*made.value()) == before) << "the version is 1 again";
}

}  // namespace
}  // namespace mayfly::nn::cuda

int main(int argc, char** argv) {
  using namespace mayfly;  // NOLINT: a main
  testing::InitGoogleTest(&argc, argv);
  const Result<void*> function = load_module("cuda", nn::cuda::kCudaModuleSymbol);
  if (!function.ok()) {
    std::printf("no GPU: %s\n", function.error().detail.c_str());
    return 0;
  }
  nn::cuda::g_module = reinterpret_cast<nn::cuda::CudaModuleFunction>(function.value())();
  const auto device = nn::cuda::g_module->probe(0);
  if (!device.ok()) {
    std::printf("no GPU: %s\n", device.error().detail.c_str());
    return 0;
  }
  std::printf("GPU: %s\n", device.value().front().c_str());
  return RUN_ALL_TESTS();
}
