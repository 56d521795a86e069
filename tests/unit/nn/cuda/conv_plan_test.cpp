// The engines that cuDNN offers for an H200. The machine needs no GPU, because cuDNN gets a
// description of the device (docs/gpu.md).

#include "nn/cuda/cudnn/conv_plan.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "nn/cuda/cudnn_convolver.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda::cudnn {
namespace {

std::string h200() {
  std::ifstream file(MAYFLY_TEST_DATA "/h200.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The shape of a layer, and whether a step needs the gradient of its input.
using Case = std::pair<ConvShape, bool>;

std::set<Case> shapes_of_all_models(std::uint32_t images) {
  std::set<Case> cases;
  for (const std::string& name : model_names()) {
    const Model model = make_usual_model(name).value();
    for (const ConvSpec* spec : convolutions_of(model)) {
      cases.emplace(ConvShape::of(*spec, images), spec != &model.stem);
    }
  }
  return cases;
}

class ConvPlanOf : public testing::TestWithParam<Dtype> {};

TEST_P(ConvPlanOf, EveryConvolutionOfEveryModelHasADeterministicEngine) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok()) << target.error().detail;
  std::size_t plans = 0;
  std::size_t first_choices = 0;
  for (const std::uint32_t images : {32U, 256U}) {
    for (const auto& [shape, has_input_gradient] : shapes_of_all_models(images)) {
      for (const ConvPass pass :
           {ConvPass::kForward, ConvPass::kInputGradient, ConvPass::kWeightGradient}) {
        if (pass == ConvPass::kInputGradient && !has_input_gradient) {
          continue;
        }
        const Result<ConvPlan> plan = ConvPlan::choose({GetParam(), shape, pass}, target.value());
        ASSERT_TRUE(plan.ok()) << plan.error().detail;
        EXPECT_LE(plan.value().workspace_bytes(), kWorkspaceBytesMax);
        ++plans;
        first_choices += plan.value().rank() == 1 ? 1 : 0;
      }
    }
  }
  RecordProperty("plans", static_cast<int>(plans));
  RecordProperty("first_choices", static_cast<int>(first_choices));
}

INSTANTIATE_TEST_SUITE_P(Types, ConvPlanOf,
                         testing::Values(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16),
                         [](const auto& each) { return std::string(name_of(each.param)); });

TEST(ConvPlan, TheSameQuestionHasTheSameAnswer) {
  Result<PlanningTarget> one = PlanningTarget::described(h200());
  Result<PlanningTarget> other = PlanningTarget::described(h200());
  ASSERT_TRUE(one.ok() && other.ok());
  const Model model = make_usual_model("resnet50").value();
  const ConvShape shape = ConvShape::of(model.blocks[4].convs[1], 64);
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    const auto a = ConvPlan::choose({dtype, shape, ConvPass::kWeightGradient}, one.value());
    const auto b = ConvPlan::choose({dtype, shape, ConvPass::kWeightGradient}, other.value());
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a.value().rank(), b.value().rank());
    EXPECT_EQ(a.value().workspace_bytes(), b.value().workspace_bytes());
  }
}

TEST(ConvPlan, AnImpossibleConvolutionIsRefusedInCudnnsOwnWords) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  const ConvShape shape{.images = 1,
                        .in_channels = 8,
                        .out_channels = 8,
                        .kernel = 3,
                        .stride = 1,
                        .padding = 1,
                        .input_size = 8,
                        .output_size = 5};
  const auto plan = ConvPlan::choose({Dtype::kFp32, shape, ConvPass::kForward}, target.value());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Errc::kUnsupported);
  EXPECT_NE(plan.error().detail.find("CUDNN_STATUS_"), std::string::npos) << plan.error().detail;
}

TEST(ConvPlans, AStepIsPlannedAndBoundWithoutADevice) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  for (const auto& [name, dtype] :
       {std::pair{"resnet20", Dtype::kBf16}, std::pair{"resnet50", Dtype::kBf16},
        std::pair{"resnet20", Dtype::kFp16}, std::pair{"resnet50", Dtype::kFp16}}) {
    const Model model = make_usual_model(name).value();
    const Result<ConvPlans> plans = ConvPlans::choose(model, 16, dtype, target.value());
    ASSERT_TRUE(plans.ok()) << plans.error().detail;
    StepPlanOptions options{.dtype = dtype};
    plans.value().describe(options, 16);
    const StepPlan plan = make_step_plan(model, 16, options);
    CudnnConvolver convolver(nullptr, plans.value());
    // Only addresses are computed: nothing is read or written.
    const StepExecutor executor(plan, host_kernels(), convolver,
                                reinterpret_cast<void*>(std::uintptr_t{1} << 40));
    const Result<void> bound = convolver.bind(plan, executor);
    EXPECT_TRUE(bound.ok()) << bound.error().detail;
  }
}

TEST(ConvPlans, EveryLayerOfEveryModelHasAnEngineInEveryType) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  for (const std::string& name : model_names()) {
    const Model model = make_usual_model(name).value();
    for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
      const auto plans = ConvPlans::choose(model, 64, dtype, target.value());
      ASSERT_TRUE(plans.ok()) << plans.error().detail;
      for (const ConvKey& key : convolutions_of_step(model, 64, dtype)) {
        EXPECT_LE(plans.value().of(key.shape, key.pass).workspace_bytes(), kWorkspaceBytesMax)
            << text_of(key);
      }
    }
  }
}

TEST(PlanningTarget, AnIncompleteDescriptionIsRefusedInCudnnsOwnWords) {
  std::string json = h200();
  json.replace(json.find("multiProcessorCount"), 19, "somethingElse      ");
  const Result<PlanningTarget> target = PlanningTarget::described(json);
  ASSERT_FALSE(target.ok());
  EXPECT_NE(target.error().detail.find("HasMember"), std::string::npos) << target.error().detail;
}

}  // namespace
}  // namespace mayfly::nn::cuda::cudnn
