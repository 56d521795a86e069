#include <fmt/format.h>

#include "nn/model_builder.hpp"

namespace mayfly::nn {
namespace {

constexpr int kStages = 3;
constexpr int kCifarStemChannels = 16;

}  // namespace

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

}  // namespace mayfly::nn
