#include "nn/cuda/step_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace mayfly::nn::cuda {
namespace {

StepPlan plan_of(const std::string& name, int image_size, const StepPlanOptions& options = {},
                 std::uint32_t images = 4) {
  const Model model = make_usual_model(name, image_size).value();
  return make_step_plan(model, images, options);
}

std::vector<TensorId> tensors_of(const Operation& operation) {
  return std::visit(
      [](const auto& each) {
        std::vector<TensorId> used;
        for (const TensorId id : each.tensors()) {
          if (id != kNoTensor) {
            used.push_back(id);
          }
        }
        return used;
      },
      operation);
}

/// The lifetime of each tensor: from the first to the last operation that names it. Computed here,
/// not taken from the plan.
std::map<TensorId, Lifetime> uses_of(const StepPlan& plan) {
  std::map<TensorId, Lifetime> uses;
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    const int now = static_cast<int>(i);
    for (const TensorId id : tensors_of(plan.operations[i])) {
      const auto [use, is_new] = uses.try_emplace(id, Lifetime{now, now});
      use->second.last = now;
    }
  }
  // The engine's caller writes these before the first operation of a pass.
  const int training = static_cast<int>(plan.training.front().operations.first);
  const int evaluation = static_cast<int>(plan.evaluation.first);
  const TensorId given =
      plan.set.has_value() ? plan.resident.train_draws : plan.resident.train_images;
  for (const TensorId id : {given, plan.resident.train_labels}) {
    uses.at(id).first = training;
  }
  for (const TensorId id : {plan.resident.evaluate_images, plan.resident.evaluate_labels}) {
    uses.at(id).first = evaluation;
  }
  const ResidentTensors& r = plan.resident;
  for (const TensorId id :
       {r.parameters, r.running_statistics, r.gradient, r.batch_statistics, r.filters,
        r.filter_gradients, r.filter_table, r.loss_input, r.loss_output}) {
    uses[id] = {0, static_cast<int>(plan.operations.size())};
  }
  if (r.momentum != kNoTensor) {
    uses[r.momentum] = {0, static_cast<int>(plan.operations.size())};
  }
  if (plan.set.has_value()) {
    for (const TensorId id : {r.set_pixels, r.set_table}) {
      uses[id] = {0, static_cast<int>(plan.operations.size())};
    }
  } else {  // may be written at any time
    uses[r.next_images] = {0, static_cast<int>(plan.operations.size())};
  }
  return uses;
}

TEST(StepPlan, NoTwoTensorsInUseShareMemory) {
  std::vector<StepPlan> plans = {
      plan_of("resnet20", 32, {.keeps_state = true, .set = ResidentSet{.samples = 100}})};
  for (const std::string& name : model_names()) {
    plans.push_back(plan_of(name, 32));
  }
  for (const StepPlan& plan : plans) {
    const auto uses = uses_of(plan);
    const std::vector<PlannedTensor>& tensors = plan.memory.tensors();
    ASSERT_EQ(uses.size(), tensors.size());
    for (std::size_t a = 0; a < tensors.size(); ++a) {
      EXPECT_EQ(tensors[a].offset % 256, 0U);
      EXPECT_LE(tensors[a].offset + tensors[a].bytes, plan.memory.total());
      for (std::size_t b = a + 1; b < tensors.size(); ++b) {
        const bool apart = tensors[a].offset + tensors[a].bytes <= tensors[b].offset ||
                           tensors[b].offset + tensors[b].bytes <= tensors[a].offset;
        ASSERT_TRUE(apart || !uses.at(TensorId{a}).overlaps(uses.at(TensorId{b})))
            << tensors[a].name << " and " << tensors[b].name;
      }
    }
  }
}

TEST(StepPlan, GradientsLieWhereActivationsWere) {
  const StepPlan plan = plan_of("resnet50", 224, {}, 64);
  std::size_t sum = 0;
  std::size_t kept = 0;  // bytes that forward leaves for backward
  for (const PlannedTensor& tensor : plan.memory.tensors()) {
    sum += tensor.bytes;
    const auto middle = static_cast<int>(
        std::ranges::find_if(
            plan.operations,
            [](const Operation& each) { return std::holds_alternative<ClassifyGradient>(each); }) -
        plan.operations.begin());
    kept += tensor.lifetime.first < middle && middle < tensor.lifetime.last ? tensor.bytes : 0;
  }
  EXPECT_LT(plan.memory.total(), sum / 2);
  EXPECT_LT(plan.memory.total(), kept + kept / 10);
}

TEST(StepPlan, SegmentsCoverTrainingAndTheirBordersFallToZero) {
  for (const std::string& name : model_names()) {
    for (const std::size_t elements :
         {std::size_t{1}, std::size_t{1} << 18, std::size_t{1} << 40}) {
      const StepPlan plan = plan_of(name, 0, {.segment_elements = elements});
      std::size_t at = plan.load.end;
      std::size_t border = plan.memory.tensors()[static_cast<std::size_t>(plan.resident.gradient)]
                               .bytes;  // above every offset
      for (const Segment& segment : plan.training) {
        EXPECT_EQ(segment.operations.first, at);
        EXPECT_LT(segment.operations.first, segment.operations.end);
        EXPECT_LT(segment.ready_from, border) << name;
        at = segment.operations.end;
        border = segment.ready_from;
      }
      EXPECT_EQ(at, plan.evaluation.first);
      EXPECT_EQ(border, 0U);
      EXPECT_EQ(plan.evaluation.end, plan.operations.size());
      if (elements == 1) {
        EXPECT_EQ(plan.training.size(), plan.layers.size());
      } else if (elements > (std::size_t{1} << 30)) {
        EXPECT_EQ(plan.training.size(), 1U);
      }
    }
  }
}

/// Checks that the operations write the gradient of each parameter once, and before its border.
void expect_written_once(const std::string& name, const StepPlanOptions& options) {
  const StepPlan plan = plan_of(name, 32, options);
  std::map<std::size_t, std::size_t> written;  // offset of a tensor -> operation
  const auto note = [&](std::size_t offset, std::size_t operation) {
    EXPECT_TRUE(written.emplace(offset, operation).second) << name << " " << offset;
  };
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    if (const auto* sums = std::get_if<SumNormGradient>(&plan.operations[i])) {
      note(plan.layers[sums->layer].scale, i);
      note(plan.layers[sums->layer].shift, i);
    } else if (std::holds_alternative<ClassifyGradient>(plan.operations[i])) {
      note(plan.classifier_weight, i);
      note(plan.classifier_bias, i);
    } else if (const auto* unpack = std::get_if<UnpackFilterGradients>(&plan.operations[i])) {
      for (std::size_t layer = unpack->first_layer; layer < unpack->end_layer; ++layer) {
        note(plan.layers[layer].weight, i);
      }
    }
  }
  const Model model = make_usual_model(name, 32).value();
  ASSERT_EQ(written.size(), model.parameters.size()) << name;
  for (const auto& [offset, operation] : written) {
    const auto segment = std::ranges::find_if(
        plan.training, [&](const Segment& each) { return each.ready_from <= offset; });
    ASSERT_NE(segment, plan.training.end());
    EXPECT_LT(operation, segment->operations.end) << name << " " << offset;
  }
}

TEST(StepPlan, EveryGradientIsWrittenOnceAndBeforeItsBorder) {
  for (const std::string& name : model_names()) {
    expect_written_once(name, {});
  }
}

TEST(StepPlan, AWeightGradientIsComputedBeforeItIsUnpacked) {
  const StepPlan plan = plan_of("resnet50", 32, {.segment_elements = 1 << 20});
  std::vector<bool> computed(plan.layers.size());
  std::vector<bool> unpacked(plan.layers.size());
  for (const Operation& operation : plan.operations) {
    if (const auto* conv = std::get_if<Convolve>(&operation);
        conv != nullptr && conv->pass == ConvPass::kWeightGradient) {
      computed[conv->layer] = true;
    } else if (const auto* unpack = std::get_if<UnpackFilterGradients>(&operation)) {
      for (std::size_t layer = unpack->first_layer; layer < unpack->end_layer; ++layer) {
        EXPECT_TRUE(computed[layer]) << layer;
        EXPECT_FALSE(unpacked[layer]) << layer;
        unpacked[layer] = true;
      }
    }
  }
  EXPECT_EQ(std::ranges::count(unpacked, true), static_cast<long>(plan.layers.size()));
}

TEST(ConvolutionsOfStep, AStepHasEachConvolutionOnceAndNoGradientOfImages) {
  const Model model = make_usual_model("resnet50").value();
  const std::set<ConvKey> all = convolutions_of_step(model, 16, Dtype::kBf16);
  const ConvShape stem = ConvShape::of(model.stem, 16);
  EXPECT_TRUE(all.contains({Dtype::kBf16, stem, ConvPass::kForward}));
  EXPECT_TRUE(all.contains({Dtype::kBf16, stem, ConvPass::kWeightGradient}));
  EXPECT_FALSE(all.contains({Dtype::kBf16, stem, ConvPass::kInputGradient}));
  EXPECT_LT(all.size(), 3 * convolutions_of(model).size()) << "equal layers share an entry";
}

TEST(StepPlan, ScratchIsThereWhileItsConvolutionRuns) {
  const auto bytes = [](const ConvShape&, ConvPass pass) {
    return pass == ConvPass::kForward ? std::size_t{0} : std::size_t{1} << 20;
  };
  const StepPlan plan = plan_of("resnet20", 0, {.workspace_bytes = bytes});
  for (const Operation& operation : plan.operations) {
    if (const auto* conv = std::get_if<Convolve>(&operation)) {
      EXPECT_EQ(conv->workspace == kNoTensor, conv->pass == ConvPass::kForward);
    }
  }
  EXPECT_LT(plan.memory.total(), plan_of("resnet20", 0).memory.total() + (2U << 20))
      << "scratch is shared";
}

TEST(StepPlan, SixteenBitsNeedLittleMoreThanHalf) {
  const std::size_t full = plan_of("resnet50", 224).memory.total();
  const std::size_t half = plan_of("resnet50", 224, {.dtype = Dtype::kBf16}).memory.total();
  EXPECT_LT(half, full * 6 / 10 + (std::size_t{300} << 20));
  EXPECT_GT(half, full / 2);
}

}  // namespace
}  // namespace mayfly::nn::cuda
