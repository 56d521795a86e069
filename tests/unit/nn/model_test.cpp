#include "nn/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace mayfly::nn {
namespace {

Model model_named(const std::string& name, int classes = 10) {
  return make_model(name, classes).value();
}

const TensorInfo& parameter_named(const Model& model, const std::string& name) {
  const auto found = std::find_if(model.parameters.begin(), model.parameters.end(),
                                  [&](const TensorInfo& info) { return info.name == name; });
  EXPECT_NE(found, model.parameters.end()) << name;
  return *found;
}

TEST(Model, Resnet20HasTheParameterCountOfThePaper) {
  EXPECT_EQ(model_named("resnet20").parameter_count, 269722U);
}

TEST(Model, BlocksFollowFromTheDepth) {
  EXPECT_EQ(model_named("resnet20").blocks.size(), 9U);
  EXPECT_EQ(model_named("resnet32").blocks.size(), 15U);
  EXPECT_EQ(model_named("resnet44").blocks.size(), 21U);
  EXPECT_EQ(model_named("resnet56").blocks.size(), 27U);
  EXPECT_EQ(model_named("resnet110").blocks.size(), 54U);
}

TEST(Model, TensorsTileTheFlatArraysWithoutASeam) {
  for (const std::string& name : model_names()) {
    const Model model = model_named(name);
    for (const auto* list : {&model.parameters, &model.statistics}) {
      std::size_t next = 0;
      for (const TensorInfo& info : *list) {
        EXPECT_EQ(info.offset, next) << info.name;
        std::size_t size = 1;
        for (const std::int64_t extent : info.shape) {
          size *= static_cast<std::size_t>(extent);
        }
        EXPECT_EQ(info.size, size) << info.name;
        next += info.size;
      }
      EXPECT_EQ(next, list == &model.parameters ? model.parameter_count : model.statistic_count);
    }
  }
}

TEST(Model, NamesAreUniqueAndTorchvisionLike) {
  const Model model = model_named("resnet20");
  std::set<std::string> names;
  for (const auto* list : {&model.parameters, &model.statistics}) {
    for (const TensorInfo& info : *list) {
      EXPECT_TRUE(names.insert(info.name).second) << info.name;
    }
  }
  for (const char* name :
       {"conv1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer3.2.bn2.bias", "fc.weight",
        "fc.bias", "bn1.running_mean", "layer2.0.bn1.running_var"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(parameter_named(model, "layer2.0.conv1.weight").shape,
            (std::vector<std::int64_t>{32, 16, 3, 3}));
}

TEST(Model, ScaleShiftAndVarianceFollowTheirWeightAndMean) {
  const Model model = model_named("resnet32");
  for (const BlockSpec& block : model.blocks) {
    for (const ConvSpec& conv : {block.conv1, block.conv2}) {
      EXPECT_NE(model.parameters[conv.weight].name.find("conv"), std::string::npos);
      EXPECT_NE(model.parameters[conv.weight + 1].name.find("bn"), std::string::npos);
      EXPECT_TRUE(model.parameters[conv.weight + 2].name.ends_with(".bias"));
      EXPECT_TRUE(model.statistics[conv.running_mean].name.ends_with(".running_mean"));
      EXPECT_TRUE(model.statistics[conv.running_mean + 1].name.ends_with(".running_var"));
    }
  }
}

TEST(Model, OnlyTheFirstBlocksOfLaterStagesDownsample) {
  const Model model = model_named("resnet44");
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    const BlockSpec& block = model.blocks[i];
    EXPECT_EQ(block.downsample, i == 7 || i == 14);
    EXPECT_EQ(block.conv1.stride, block.downsample ? 2 : 1);
    EXPECT_EQ(block.conv2.input_size, block.conv1.input_size / block.conv1.stride);
  }
  EXPECT_EQ(model.blocks.back().conv2.input_size, 8);
  EXPECT_EQ(model.features, 64);
}

TEST(Model, ClassifierFollowsTheClassCount) {
  const Model model = model_named("resnet20", 100);
  EXPECT_EQ(model.parameters[model.classifier_weight].shape, (std::vector<std::int64_t>{100, 64}));
  EXPECT_EQ(model.parameters[model.classifier_weight + 1].size, 100U);
}

TEST(Model, AnUnknownNameIsRefusedWithTheNearestOne) {
  const auto result = make_model("resnt56", 10);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kInvalidInput);
  EXPECT_NE(result.error().detail.find("did you mean \"resnet56\""), std::string::npos)
      << result.error().detail;
}

TEST(Model, AnImpossibleClassCountIsRefused) {
  EXPECT_FALSE(make_model("resnet20", 1).ok());
  EXPECT_FALSE(make_model("resnet20", 257).ok());
  EXPECT_TRUE(make_model("resnet20", 256).ok());
}

}  // namespace
}  // namespace mayfly::nn
