// What cuDNN offers for an H200, asked on a machine that need not have one: a description of the
// device stands for it (docs/gpu.md).

#include "nn/cuda/cudnn/conv_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "nn/cuda/cudnn_convolver.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda::cudnn {
namespace {

std::string h200() {
  std::ifstream file(MAYFLY_TEST_DATA "/h200.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A layer's shape, and whether anybody wants its input's gradient.
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
        const Result<ConvPlan> plan = ConvPlan::choose(shape, pass, GetParam(), target.value());
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
    const auto a = ConvPlan::choose(shape, ConvPass::kWeightGradient, dtype, one.value());
    const auto b = ConvPlan::choose(shape, ConvPass::kWeightGradient, dtype, other.value());
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a.value().engine(), b.value().engine());
    EXPECT_EQ(a.value().workspace_bytes(), b.value().workspace_bytes());
  }
}

/// A table of what the heuristics offer: the last of the first three, so often not the first.
EngineTable offered_table(const std::set<ConvKey>& convolutions, const PlanningTarget& target) {
  EngineTable table("sm_90-cudnn-test");
  for (const ConvKey& key : convolutions) {
    const auto offered = ConvPlan::offered(key.shape, key.pass, key.dtype, target, 3);
    EXPECT_TRUE(offered.ok()) << offered.error().detail;
    if (offered.ok()) {
      table.set(key, {.engine = offered.value().back().engine()});
    }
  }
  return table;
}

TEST(ConvPlan, OffersAreDifferentEnginesInCudnnsOrder) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  std::size_t with_a_choice = 0;
  const Model model = make_usual_model("resnet50").value();
  for (const ConvKey& key : convolutions_of_step(model, 64, Dtype::kBf16)) {
    const auto plans = ConvPlan::offered(key.shape, key.pass, key.dtype, target.value(), 100);
    ASSERT_TRUE(plans.ok()) << plans.error().detail;
    std::set<EngineName> names;
    for (const ConvPlan& plan : plans.value()) {
      EXPECT_TRUE(names.insert(plan.engine()).second) << plan.engine().text();
    }
    const auto first = ConvPlan::choose(key.shape, key.pass, key.dtype, target.value());
    EXPECT_EQ(first.value().engine(), plans.value().front().engine());
    with_a_choice += plans.value().size() > 1 ? 1 : 0;
  }
  EXPECT_GT(with_a_choice, 0U);
}

TEST(ConvPlan, AnEngineIsPlannedByItsName) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
    const Model model = make_usual_model("resnet18").value();
    for (const ConvKey& key : convolutions_of_step(model, 32, dtype)) {
      const auto offered = ConvPlan::offered(key.shape, key.pass, key.dtype, target.value(), 3);
      ASSERT_TRUE(offered.ok()) << offered.error().detail;
      for (const ConvPlan& each : offered.value()) {
        const auto named =
            ConvPlan::by(each.engine(), key.shape, key.pass, key.dtype, target.value());
        ASSERT_TRUE(named.ok()) << named.error().detail;
        EXPECT_EQ(named.value().engine(), each.engine());
        EXPECT_EQ(named.value().workspace_bytes(), each.workspace_bytes());
      }
    }
  }
}

TEST(ConvPlan, AnEngineThatDoesNotExistOrWeWouldNotTakeIsRefusedInOneLine) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  const Model model = make_usual_model("resnet50").value();
  const ConvShape shape = ConvShape::of(model.blocks[4].convs[1], 64);
  std::size_t not_ours = 0;
  // Of those by number some are not deterministic, some TF32, some compiled at run time.
  for (std::int64_t index = 0; index < 100; ++index) {
    const auto plan =
        ConvPlan::by({index, {}}, shape, ConvPass::kWeightGradient, Dtype::kFp32, target.value());
    if (plan.ok()) {
      continue;
    }
    EXPECT_EQ(plan.error().code, Errc::kUnsupported);
    EXPECT_EQ(plan.error().detail.find('\n'), std::string::npos) << plan.error().detail;
    EXPECT_TRUE(plan.error().detail.starts_with(EngineName{index, {}}.text()));
    const bool is_objection = plan.error().detail.find(": it is ") != std::string::npos ||
                              plan.error().detail.find("TF32") != std::string::npos;
    not_ours += is_objection ? 1 : 0;
  }
  EXPECT_GT(not_ours, 0U);
  EXPECT_FALSE(
      ConvPlan::by({9'999, {}}, shape, ConvPass::kForward, Dtype::kBf16, target.value()).ok());
}

TEST(ConvPlans, AStepIsPlannedByATable) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  const Model model = make_usual_model("resnet50").value();
  const std::set<ConvKey> all = convolutions_of_step(model, 16, Dtype::kBf16);
  const EngineTable made = offered_table(all, target.value());
  const Result<EngineTable> table = EngineTable::parse(made.text());  // as if from a file
  ASSERT_TRUE(table.ok()) << table.error().detail;
  const auto usual = ConvPlans::choose(model, 16, Dtype::kBf16, target.value());
  const auto plans = ConvPlans::choose(model, 16, Dtype::kBf16, target.value(), &table.value());
  ASSERT_TRUE(usual.ok() && plans.ok());
  std::size_t others = 0;
  for (const ConvKey& key : all) {
    const EngineName& engine = plans.value().of(key.shape, key.pass).engine();
    EXPECT_EQ(engine, made.find(key)->engine);
    others += engine == usual.value().of(key.shape, key.pass).engine() ? 0 : 1;
  }
  EXPECT_GT(others, 0U) << "the table decides nothing";
  EXPECT_EQ(plans.value().use().by_table, all.size());
  EXPECT_EQ(plans.value().use().remark(), "");
  EXPECT_EQ(usual.value().use().by_table, 0U);
}

TEST(ConvPlans, WhatTheTableLacksOrCannotHaveIsCudnnsFirstChoice) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  const Model model = make_usual_model("resnet20").value();
  const std::set<ConvKey> all = convolutions_of_step(model, 16, Dtype::kBf16);
  EngineTable table = offered_table({*all.begin()}, target.value());
  const ConvKey impossible = *all.rbegin();
  table.set(impossible, {.engine = {9'999, {}}});
  const auto usual = ConvPlans::choose(model, 16, Dtype::kBf16, target.value());
  const auto plans = ConvPlans::choose(model, 16, Dtype::kBf16, target.value(), &table);
  ASSERT_TRUE(usual.ok() && plans.ok());
  for (const ConvKey& key : all) {
    if (key != *all.begin()) {
      EXPECT_EQ(plans.value().of(key.shape, key.pass).engine(),
                usual.value().of(key.shape, key.pass).engine());
    }
  }
  const EngineUse& use = plans.value().use();
  EXPECT_EQ(use.convolutions, all.size());
  EXPECT_EQ(use.by_table, 1U);
  EXPECT_EQ(use.refused, 1U);
  EXPECT_NE(use.remark().find("the first eng9999 for the "), std::string::npos) << use.remark();
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
  const auto plan = ConvPlan::choose(shape, ConvPass::kForward, Dtype::kFp32, target.value());
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
    // Addresses only: nothing is read or written.
    const StepExecutor executor(plan, host_kernels(), convolver,
                                reinterpret_cast<void*>(std::uintptr_t{1} << 40));
    const Result<void> bound = convolver.bind(plan, executor);
    EXPECT_TRUE(bound.ok()) << bound.error().detail;
    const auto fused = std::ranges::count_if(plan.operations, [](const Operation& each) {
      const auto* convolve = std::get_if<Convolve>(&each);
      return convolve != nullptr && is_fused(convolve->pass);
    });
    EXPECT_EQ(fused > 0, dtype == Dtype::kFp16) << name;
  }
}

/// In training all but the stem, whose four channels are too few; in bf16 and fp32 none.
TEST(ConvPlans, InFp16EveryLayerOfEveryModelButTheStemIsFused) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  for (const std::string& name : model_names()) {
    const Model model = make_usual_model(name).value();
    for (const std::uint32_t images : {32U, 256U}) {
      const auto plans = ConvPlans::choose(model, images, Dtype::kFp16, target.value());
      ASSERT_TRUE(plans.ok()) << plans.error().detail;
      std::size_t missing = 0;
      for (const ConvKey& key : convolutions_of_step(model, images, Dtype::kFp16)) {
        const bool is_there = plans.value().has(key.shape, key.pass);
        missing += is_there ? 0 : 1;
        EXPECT_EQ(is_there, !is_fused(key.pass) || key.shape.in_channels != kImageChannels)
            << to_string(key.pass) << " of " << key.shape.text();
        if (is_there) {
          EXPECT_LE(plans.value().of(key.shape, key.pass).workspace_bytes(), kWorkspaceBytesMax);
        }
      }
      EXPECT_EQ(missing, 1U) << name;
      EXPECT_EQ(plans.value().use().convolutions, plans.value().size());
      EXPECT_GT(plans.value().use().fused, 0U);
    }
  }
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
    const ConvShape shape =
        ConvShape::of(make_usual_model("resnet50").value().blocks[4].convs[1], 64);
    EXPECT_FALSE(ConvPlan::choose(shape, ConvPass::kForwardSums, dtype, target.value()).ok())
        << "it is offered now: see kFusedDtype";
  }
}

TEST(ConvPlans, ATableMaySayThatALayerIsNotFused) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  const Model model = make_usual_model("resnet20").value();
  EngineTable table("sm_90-cudnn-test");
  ConvKey unfused;
  for (const ConvKey& key : convolutions_of_step(model, 16, Dtype::kFp16)) {
    if (key.pass == ConvPass::kForwardSums && key.shape.in_channels == 32) {
      unfused = key;
    }
  }
  table.set(unfused, {.engine = {EngineName::kUnfused, {}}});
  const Result<EngineTable> read = EngineTable::parse(table.text());
  ASSERT_TRUE(read.ok()) << read.error().detail;
  const auto usual = ConvPlans::choose(model, 16, Dtype::kFp16, target.value());
  const auto plans = ConvPlans::choose(model, 16, Dtype::kFp16, target.value(), &read.value());
  ASSERT_TRUE(usual.ok() && plans.ok());
  EXPECT_TRUE(usual.value().has(unfused.shape, unfused.pass));
  EXPECT_FALSE(plans.value().has(unfused.shape, unfused.pass));
  EXPECT_TRUE(plans.value().has(unfused.shape, ConvPass::kForward));
  EXPECT_EQ(plans.value().size() + 1, usual.value().size());
  EXPECT_EQ(plans.value().use().refused, 0U);
}

/// Engine `number` of those that cuDNN offers, refused by a device.
EngineRefusal refusal_of(const ConvKey& key, const PlanningTarget& target, std::size_t number) {
  auto offered = ConvPlan::offered(key.shape, key.pass, key.dtype, target, number + 1);
  EXPECT_TRUE(offered.ok() && offered.value().size() == number + 1) << text_of(key);
  return {key, offered.value()[number].engine(), "pretended"};
}

TEST(ConvPlans, AFusedPassThatTheDeviceRefusesIsAsIfItWereNotOffered) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  const Model model = make_usual_model("resnet20").value();
  const auto usual = ConvPlans::choose(model, 16, Dtype::kFp16, target.value());
  ASSERT_TRUE(usual.ok());
  const std::map<ConvKey, EngineName>& engines = usual.value().use().engines;
  const auto fused =
      std::ranges::find_if(engines, [](const auto& e) { return is_fused(e.first.pass); });
  ASSERT_NE(fused, engines.end());
  const ConvKey key = fused->first;
  const std::vector<EngineRefusal> refused = {refusal_of(key, target.value(), 0)};
  const auto plans = ConvPlans::choose(model, 16, Dtype::kFp16, target.value(), nullptr, refused);
  ASSERT_TRUE(plans.ok()) << plans.error().detail;
  EXPECT_TRUE(usual.value().has(key.shape, key.pass));
  EXPECT_FALSE(plans.value().has(key.shape, key.pass));
  EXPECT_EQ(plans.value().size(), usual.value().size() - 1) << "all others are as they were";
  EXPECT_EQ(plans.value().use().fused, usual.value().use().fused - 1);
  EXPECT_NE(plans.value().use().fingerprint(), usual.value().use().fingerprint());
  const std::vector<std::string> warnings = plans.value().use().warnings();
  ASSERT_EQ(warnings.size(), 1U);
  for (const std::string& words : {refused[0].engine.text(), key.shape.text(),
                                   std::string("pretended; the layer is computed in parts")}) {
    EXPECT_NE(warnings[0].find(words), std::string::npos) << warnings[0];
  }
}

TEST(ConvPlans, InsteadOfAPlainEngineThatTheDeviceRefusesTheNextIsTaken) {
  Result<PlanningTarget> target = PlanningTarget::described(h200());
  ASSERT_TRUE(target.ok());
  const Model model = make_usual_model("resnet20").value();
  const ConvKey key = *convolutions_of_step(model, 16, Dtype::kBf16).rbegin();
  ASSERT_FALSE(is_fused(key.pass));
  std::vector<EngineRefusal> refused = {refusal_of(key, target.value(), 0)};
  const EngineName second = refusal_of(key, target.value(), 1).engine;
  const auto plans = ConvPlans::choose(model, 16, Dtype::kBf16, target.value(), nullptr, refused);
  ASSERT_TRUE(plans.ok()) << plans.error().detail;
  EXPECT_EQ(plans.value().of(key.shape, key.pass).engine(), second);

  const auto all = ConvPlan::offered(key.shape, key.pass, key.dtype, target.value(), 1000);
  refused.clear();
  for (const ConvPlan& each : all.value()) {
    refused.push_back({key, each.engine(), "pretended"});
  }
  const auto none = ConvPlans::choose(model, 16, Dtype::kBf16, target.value(), nullptr, refused);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().detail.find('\n'), std::string::npos);
  EXPECT_NE(none.error().detail.find(key.shape.text()), std::string::npos) << none.error().detail;
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
