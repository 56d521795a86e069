// A device that does not run all it was offered, played by a convolver on the host.

#include "nn/cuda/step_trial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "tests/unit/nn/cuda/reference_executor.hpp"
#include "tests/unit/nn/cuda/step_problem.hpp"

namespace mayfly::nn::cuda {
namespace {

using Refusals = std::vector<EngineRefusal>;

/// Starts nothing, and refuses what it is told to.
class RefusingConvolver final : public Convolver {
 public:
  RefusingConvolver(const StepPlan& plan, std::function<bool(const ConvKey&)> refuses)
      : plan_(plan), refuses_(std::move(refuses)) {}
  Result<void> convolve(std::size_t /*operation*/, const Convolve& what,
                        const ConvTensors& /*tensors*/, Stream /*stream*/) override {
    ++tried;
    const ConvKey key{plan_.dtype, plan_.layers[what.layer].conv, what.pass};
    return refuses_(key) ? Result<void>(Error{Errc::kUnsupported, "pretended"}) : Result<void>();
  }

  int tried = 0;

 private:
  const StepPlan& plan_;
  std::function<bool(const ConvKey&)> refuses_;
};

bool is_offered(const ConvShape& shape) {
  return shape.in_channels % 8 == 0;
}

bool is_refused(const ConvKey& key) {
  return is_fused(key.pass) && key.shape.in_channels == 32;
}

/// A step as a GPU would be given it: planned, tried, and planned again.
struct TriedStep {
  TriedStep(const Model& model, std::uint32_t images) {
    const auto make = [&](const Refusals& refused) -> Result<void> {
      ++plans;
      options.has_fused = [refused](const ConvShape& shape, ConvPass pass) {
        return is_offered(shape) && std::ranges::none_of(refused, [&](const EngineRefusal& each) {
                 return each.key.shape == shape && each.key.pass == pass;
               });
      };
      plan = make_step_plan(model, images, options);
      use.not_run = refused;
      return {};
    };
    const auto try_all = [&]() -> Result<Refusals> {
      AlignedBuffer<std::byte> memory(plan.memory.total());
      RefusingConvolver convolver(plan, is_refused);
      const StepExecutor executor(plan, host_kernels(), convolver, memory.data());
      const auto failed =
          try_convolutions(plan, executor, convolver, nullptr, [] { return Result<void>(); });
      EXPECT_TRUE(failed.ok());
      Refusals refused;
      for (const FailedConvolution& each : failed.value()) {
        refused.push_back({each.key, {7, {}}, each.why});
      }
      return refused;
    };
    EXPECT_TRUE(plan_what_runs(make, try_all).ok());
  }

  int plans = 0;
  StepPlanOptions options;
  StepPlan plan;
  EngineUse use;
};

bool has(const StepPlan& plan, const std::function<bool(const ConvKey&)>& condition) {
  return std::ranges::any_of(plan.operations, [&](const Operation& each) {
    const auto* what = std::get_if<Convolve>(&each);
    return what != nullptr && condition({plan.dtype, plan.layers[what->layer].conv, what->pass});
  });
}

TEST(StepTrial, WhatADeviceRefusesIsPlannedAsIfItHadNotBeenOffered) {
  Problem problem("resnet20", 32, 4);
  problem.decide_relus();
  const TriedStep tried(problem.model, 4);
  EXPECT_EQ(tried.plans, 2) << "all refusals are found at once";
  EXPECT_FALSE(has(tried.plan, is_refused));
  EXPECT_TRUE(has(tried.plan, [](const ConvKey& key) { return is_fused(key.pass); }));
  // As many kinds of convolutions are refused as the plan of a device that refuses none has.
  const std::vector<std::string> warnings = tried.use.warnings();
  ASSERT_FALSE(warnings.empty());
  for (const std::string& line : warnings) {
    EXPECT_NE(line.find(" x 32 x "), std::string::npos) << line;
    EXPECT_TRUE(line.starts_with("eng7 for the ")) << line;
    EXPECT_TRUE(
        line.ends_with("does not run on this GPU: pretended; the layer is computed in parts"))
        << line;
  }

  ReferenceExecutor unfused(problem.model, 4);
  ReferenceExecutor engine(problem.model, 4, tried.options);
  const Outcome expected = problem.train(unfused);
  const Outcome found = problem.train(engine);
  EXPECT_FALSE(found == expected) << "nothing is fused";
  EXPECT_NEAR(found.result.loss / expected.result.loss, 1.0, 1e-5);
  EXPECT_LT(relative_error(found.gradient, expected.gradient), 1e-4);
  EXPECT_LT(relative_error(found.statistics, expected.statistics), 1e-5);
}

TEST(StepTrial, EachKindOfConvolutionIsTriedOnce) {
  const Model model = make_usual_model("resnet20").value();
  const StepPlan plan = make_step_plan(model, 2, {});
  AlignedBuffer<std::byte> memory(plan.memory.total());
  RefusingConvolver convolver(plan, [](const ConvKey&) { return false; });
  const StepExecutor executor(plan, host_kernels(), convolver, memory.data());
  int settled = 0;
  const auto failed = try_convolutions(plan, executor, convolver, nullptr, [&settled] {
    ++settled;
    return Result<void>();
  });
  ASSERT_TRUE(failed.ok());
  EXPECT_TRUE(failed.value().empty());
  EXPECT_EQ(convolver.tried, settled);
  EXPECT_EQ(static_cast<std::size_t>(convolver.tried),
            convolutions_of_step(model, 2, Dtype::kFp32).size());
}

TEST(StepTrial, ADeviceThatFailsForGoodIsAnErrorThatNamesTheConvolution) {
  const Model model = make_usual_model("resnet20").value();
  const StepPlan plan = make_step_plan(model, 2, {});
  AlignedBuffer<std::byte> memory(plan.memory.total());
  RefusingConvolver convolver(plan, [](const ConvKey&) { return false; });
  const StepExecutor executor(plan, host_kernels(), convolver, memory.data());
  const auto failed = try_convolutions(plan, executor, convolver, nullptr, [] {
    return Result<void>(Error{Errc::kUnsupported, "an illegal memory access was encountered"});
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_TRUE(failed.error().detail.starts_with("the forward")) << failed.error().detail;
  EXPECT_TRUE(failed.error().detail.ends_with(": an illegal memory access was encountered"));
}

}  // namespace
}  // namespace mayfly::nn::cuda
