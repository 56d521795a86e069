#include "nn/cuda/conv_shape.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mayfly::nn::cuda {
const char* to_string(ConvPass pass) {
  switch (pass) {
    case ConvPass::kForward: return "forward";
    case ConvPass::kInputGradient: return "input gradient";
    case ConvPass::kWeightGradient: return "weight gradient";
  }
  return "?";
}

ConvShape ConvShape::of(const ConvSpec& spec, std::uint32_t images) {
  return {.images = images,
          .in_channels = std::max(spec.in_channels, static_cast<int>(kImageChannels)),
          .out_channels = spec.out_channels,
          .kernel = spec.kernel,
          .stride = spec.stride,
          .padding = spec.padding,
          .input_size = spec.input_size,
          .output_size = spec.output_size()};
}

std::string ConvShape::text() const {
  return fmt::format("{} x {} x {} x {} -> {}, {}x{} stride {}", images, in_channels, input_size,
                     input_size, out_channels, kernel, kernel, stride);
}

std::set<ConvKey> convolutions_of_step(const Model& model, std::uint32_t microbatch, Dtype dtype) {
  std::set<ConvKey> all;
  for (const ConvSpec* spec : convolutions_of(model)) {
    for (const ConvPass pass : kConvPasses) {
      const bool is_of_images = pass == ConvPass::kInputGradient && spec == &model.stem;
      if (!is_of_images) {
        all.insert({dtype, ConvShape::of(*spec, microbatch), pass});
      }
    }
  }
  return all;
}

std::string text_of(const ConvKey& key) {
  return fmt::format("the {} of {} in {}", to_string(key.pass), key.shape.text(),
                     name_of(key.dtype));
}

}  // namespace mayfly::nn::cuda
