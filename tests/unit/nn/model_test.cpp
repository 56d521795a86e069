#include "nn/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace mayfly::nn {
namespace {

using Shape = std::vector<std::int64_t>;

Model model_named(const std::string& name, int classes = 10, int image_size = 0) {
  return make_model(name, classes, image_size).value();
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

TEST(Model, ImagenetNetworksHaveTorchvisionsParameterCounts) {
  EXPECT_EQ(model_named("resnet18", 1000).parameter_count, 11689512U);
  EXPECT_EQ(model_named("resnet34", 1000).parameter_count, 21797672U);
  EXPECT_EQ(model_named("resnet50", 1000).parameter_count, 25557032U);
}

TEST(Model, BlocksFollowFromTheDepth) {
  EXPECT_EQ(model_named("resnet20").blocks.size(), 9U);
  EXPECT_EQ(model_named("resnet32").blocks.size(), 15U);
  EXPECT_EQ(model_named("resnet44").blocks.size(), 21U);
  EXPECT_EQ(model_named("resnet56").blocks.size(), 27U);
  EXPECT_EQ(model_named("resnet110").blocks.size(), 54U);
  EXPECT_EQ(model_named("resnet18").blocks.size(), 8U);
  EXPECT_EQ(model_named("resnet34").blocks.size(), 16U);
  EXPECT_EQ(model_named("resnet50").blocks.size(), 16U);
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
  EXPECT_EQ(parameter_named(model, "layer2.0.conv1.weight").shape, (Shape{32, 16, 3, 3}));
}

TEST(Model, ScaleShiftAndVarianceFollowTheirWeightAndMean) {
  for (const std::string& name : model_names()) {
    const Model model = model_named(name);
    std::size_t weight = 0;
    std::size_t mean = 0;
    for (const ConvSpec* conv : convolutions_of(model)) {
      EXPECT_EQ(conv->weight, weight);
      EXPECT_EQ(conv->running_mean, mean);
      EXPECT_EQ(model.parameters[weight].shape,
                (Shape{conv->out_channels, conv->in_channels, conv->kernel, conv->kernel}));
      const std::string norm = model.parameters[weight + 1].name;
      const std::string prefix = norm.substr(0, norm.size() - std::string("weight").size());
      EXPECT_EQ(model.parameters[weight + 2].name, prefix + "bias");
      EXPECT_EQ(model.statistics[mean].name, prefix + "running_mean");
      EXPECT_EQ(model.statistics[mean + 1].name, prefix + "running_var");
      weight += 3;
      mean += 2;
    }
    EXPECT_EQ(model.classifier_weight, weight);
    EXPECT_EQ(model.statistics.size(), mean);
  }
}

// The output of each layer has the shape of the next layer's input, for images of several sizes.
TEST(Model, ShapesFitFromTheImageToTheClassifier) {
  for (const std::string& name : model_names()) {
    const int usual = model_named(name).image_size;
    for (const int size : {usual, usual + 32, usual * 4}) {
      const Model model = model_named(name, 10, size);
      EXPECT_EQ(model.stem.input_size, size);
      int width = model.stem.output_size() / (model.stem_pool ? 2 : 1);
      int channels = model.stem.out_channels;
      for (const BlockSpec& block : model.blocks) {
        int inner = width;
        int inner_channels = channels;
        for (const ConvSpec& conv : block.convs) {
          EXPECT_EQ(conv.input_size, inner);
          EXPECT_EQ(conv.in_channels, inner_channels);
          inner = conv.output_size();
          inner_channels = conv.out_channels;
        }
        if (block.projection.has_value()) {
          EXPECT_EQ(block.projection->input_size, width);
          EXPECT_EQ(block.projection->in_channels, channels);
          EXPECT_EQ(block.projection->output_size(), inner);
          EXPECT_EQ(block.projection->out_channels, inner_channels);
        } else {
          EXPECT_EQ(inner, block.downsample ? width / 2 : width);
          EXPECT_EQ(inner_channels, block.downsample ? 2 * channels : channels);
        }
        width = inner;
        channels = inner_channels;
      }
      EXPECT_EQ(width, size / (model.stem_pool ? 32 : 4));
      EXPECT_EQ(model.features, channels);
    }
  }
}

TEST(Model, ProjectionsAreNamedAsTorchvisionNamesThem) {
  const Model model = model_named("resnet50", 1000);
  EXPECT_EQ(parameter_named(model, "conv1.weight").shape, (Shape{64, 3, 7, 7}));
  EXPECT_EQ(parameter_named(model, "layer1.0.conv3.weight").shape, (Shape{256, 64, 1, 1}));
  EXPECT_EQ(parameter_named(model, "layer1.0.downsample.0.weight").shape, (Shape{256, 64, 1, 1}));
  EXPECT_EQ(parameter_named(model, "layer4.0.downsample.0.weight").shape,
            (Shape{2048, 1024, 1, 1}));
  EXPECT_EQ(parameter_named(model, "layer4.0.downsample.1.bias").shape, (Shape{2048}));
  EXPECT_EQ(parameter_named(model, "layer4.2.bn3.weight").shape, (Shape{2048}));
  EXPECT_EQ(parameter_named(model, "fc.weight").shape, (Shape{1000, 2048}));
}

TEST(Model, BasicImagenetStagesProjectOnlyWhereTheShapeChanges) {
  const Model model = model_named("resnet18");
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    const bool changes = i == 2 || i == 4 || i == 6;
    EXPECT_EQ(model.blocks[i].projection.has_value(), changes) << i;
    EXPECT_EQ(model.blocks[i].convs[0].stride, changes ? 2 : 1) << i;
    EXPECT_FALSE(model.blocks[i].downsample);
  }
}

// ResNet "v1.5": the stride is not in the 1x1 convolution in front, which would discard three
// quarters of its input.
TEST(Model, BottlenecksHaveTheirStrideInTheMiddle) {
  const Model model = model_named("resnet50");
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    const BlockSpec& block = model.blocks[i];
    ASSERT_EQ(block.convs.size(), 3U);
    const int stride = i == 3 || i == 7 || i == 13 ? 2 : 1;
    EXPECT_EQ(block.convs[0].stride, 1);
    EXPECT_EQ(block.convs[1].stride, stride);
    EXPECT_EQ(block.convs[2].stride, 1);
    EXPECT_EQ(block.projection.has_value(), i == 0 || stride == 2) << i;
    EXPECT_EQ(block.convs[0].padding, 0);
    EXPECT_EQ(block.convs[1].padding, 1);
  }
}

TEST(Model, OnlyTheFirstBlocksOfLaterStagesDownsample) {
  const Model model = model_named("resnet44");
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    const BlockSpec& block = model.blocks[i];
    EXPECT_EQ(block.downsample, i == 7 || i == 14);
    EXPECT_EQ(block.convs[0].stride, block.downsample ? 2 : 1);
    EXPECT_EQ(block.convs[1].input_size, block.convs[0].output_size());
  }
  EXPECT_EQ(model.blocks.back().convs[1].input_size, 8);
  EXPECT_EQ(model.features, 64);
}

TEST(Model, ClassifierFollowsTheClassCount) {
  const Model model = model_named("resnet20", 100);
  EXPECT_EQ(model.parameters[model.classifier_weight].shape, (Shape{100, 64}));
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
  EXPECT_FALSE(make_model("resnet20", 65537).ok());
  EXPECT_TRUE(make_model("resnet20", 65536).ok());
}

TEST(Model, AnImageSizeThatCannotBeHalvedEvenlyIsRefused) {
  for (const int size : {-4, 4, 6, 30, 33, 4100}) {
    EXPECT_FALSE(make_model("resnet20", 10, size).ok()) << size;
  }
  for (const int size : {-32, 16, 112, 225, 4128}) {
    EXPECT_FALSE(make_model("resnet18", 10, size).ok()) << size;
  }
  EXPECT_TRUE(make_model("resnet20", 10, 8).ok());
  EXPECT_TRUE(make_model("resnet50", 10, 32).ok());
  EXPECT_EQ(make_model("resnet18", 10, 200).error().detail,
            "resnet18 cannot take 200x200 images; the ImageNet family takes multiples of 32 from "
            "32 to 4096");
}

}  // namespace
}  // namespace mayfly::nn
