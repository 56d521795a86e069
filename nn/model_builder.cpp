#include "nn/model_builder.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/check.hpp"

namespace mayfly::nn {
namespace {

void append(std::vector<TensorInfo>& list, std::size_t& total, std::string name,
            std::vector<std::int64_t> shape) {
  std::size_t size = 1;
  for (const std::int64_t extent : shape) {
    size *= static_cast<std::size_t>(extent);
  }
  list.push_back({std::move(name), std::move(shape), total, size});
  total += size;
}

constexpr int kStages = 3;
constexpr int kCifarStemChannels = 16;

constexpr int kImagenetStemChannels = 64;
constexpr int kExpansion = 4;  // of a bottleneck's output over its 3x3 convolution

struct Plan {
  std::array<int, 4> blocks;  ///< per stage
  bool bottleneck;
};

Plan plan_for(int depth) {
  switch (depth) {
    case 18: return {{2, 2, 2, 2}, false};
    case 34: return {{3, 4, 6, 3}, false};
    case 50: return {{3, 4, 6, 3}, true};
  }
  UNREACHABLE("make_model lists the depths");
}

/// The shape of a block.
struct BlockGeometry {
  int in_channels;
  int width;  ///< channels of the 3x3 convolutions
  int out_channels;
  int stride;
  int input_size;
};

BlockSpec basic_block(ModelBuilder& builder, const std::string& prefix, const BlockGeometry& g) {
  const int halved = g.input_size / g.stride;
  return {.convs = {builder.conv_and_norm(prefix + "conv1", prefix + "bn1",
                                          {g.in_channels, g.width, 3, g.stride, g.input_size}),
                    builder.conv_and_norm(prefix + "conv2", prefix + "bn2",
                                          {g.width, g.width, 3, 1, halved})},
          .projection = std::nullopt};
}

BlockSpec bottleneck(ModelBuilder& builder, const std::string& prefix, const BlockGeometry& g) {
  const int halved = g.input_size / g.stride;
  return {.convs = {builder.conv_and_norm(prefix + "conv1", prefix + "bn1",
                                          {g.in_channels, g.width, 1, 1, g.input_size}),
                    builder.conv_and_norm(prefix + "conv2", prefix + "bn2",
                                          {g.width, g.width, 3, g.stride, g.input_size}),
                    builder.conv_and_norm(prefix + "conv3", prefix + "bn3",
                                          {g.width, g.out_channels, 1, 1, halved})},
          .projection = std::nullopt};
}

}  // namespace

ConvSpec ModelBuilder::conv_and_norm(const std::string& conv, const std::string& norm,
                                     const ConvGeometry& geometry) {
  const int out = geometry.out_channels;
  ConvSpec spec{.in_channels = geometry.in_channels,
                .out_channels = out,
                .kernel = geometry.kernel,
                .stride = geometry.stride,
                .padding = geometry.kernel / 2,
                .input_size = geometry.input_size,
                .weight = model_.parameters.size(),
                .running_mean = model_.statistics.size()};
  parameter(conv + ".weight", {out, spec.in_channels, spec.kernel, spec.kernel});
  parameter(norm + ".weight", {out});
  parameter(norm + ".bias", {out});
  statistic(norm + ".running_mean", out);
  statistic(norm + ".running_var", out);
  return spec;
}

void ModelBuilder::classifier(int features) {
  model_.features = features;
  model_.classifier_weight = model_.parameters.size();
  parameter("fc.weight", {model_.classes, features});
  parameter("fc.bias", {model_.classes});
}

void ModelBuilder::parameter(std::string name, std::vector<std::int64_t> shape) {
  append(model_.parameters, model_.parameter_count, std::move(name), std::move(shape));
}

void ModelBuilder::statistic(std::string name, int channels) {
  append(model_.statistics, model_.statistic_count, std::move(name), {channels});
}

void describe_cifar_resnet(Model& model, int depth) {
  ModelBuilder builder(model);
  int channels = kCifarStemChannels;
  int size = model.image_size;
  model.stem = builder.conv_and_norm("conv1", "bn1", {3, channels, 3, 1, size});
  const int blocks_per_stage = (depth - 2) / (2 * kStages);
  for (int stage = 0; stage < kStages; ++stage) {
    for (int i = 0; i < blocks_per_stage; ++i) {
      const std::string prefix = fmt::format("layer{}.{}.", stage + 1, i);
      BlockSpec block;
      block.downsample = stage > 0 && i == 0;
      const int stride = block.downsample ? 2 : 1;
      const int out = channels * stride;
      block.convs.push_back(builder.conv_and_norm(prefix + "conv1", prefix + "bn1",
                                                  {channels, out, 3, stride, size}));
      channels = out;
      size = block.convs.back().output_size();
      block.convs.push_back(builder.conv_and_norm(prefix + "conv2", prefix + "bn2",
                                                  {channels, channels, 3, 1, size}));
      model.blocks.push_back(std::move(block));
    }
  }
  builder.classifier(channels);
}

void describe_imagenet_resnet(Model& model, int depth) {
  const Plan plan = plan_for(depth);
  ModelBuilder builder(model);
  model.stem =
      builder.conv_and_norm("conv1", "bn1", {3, kImagenetStemChannels, 7, 2, model.image_size});
  model.stem_pool = true;
  int channels = kImagenetStemChannels;
  int size = model.stem.output_size() / 2;
  for (std::size_t stage = 0; stage < plan.blocks.size(); ++stage) {
    const int width = kImagenetStemChannels << stage;
    const int out = plan.bottleneck ? width * kExpansion : width;
    for (int i = 0; i < plan.blocks[stage]; ++i) {
      const std::string prefix = fmt::format("layer{}.{}.", stage + 1, i);
      const int stride = stage > 0 && i == 0 ? 2 : 1;
      const BlockGeometry geometry{channels, width, out, stride, size};
      BlockSpec block = plan.bottleneck ? bottleneck(builder, prefix, geometry)
                                        : basic_block(builder, prefix, geometry);
      if (stride != 1 || channels != out) {
        block.projection = builder.conv_and_norm(prefix + "downsample.0", prefix + "downsample.1",
                                                 {channels, out, 1, stride, size});
      }
      model.blocks.push_back(std::move(block));
      channels = out;
      size /= stride;
    }
  }
  builder.classifier(channels);
}

}  // namespace mayfly::nn
