#pragma once

// What a network is, without any device: its layers, tensors and names. The kernels are in nn/cpu
// (and nn/cuda); they agree on the flat layouts declared here.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace mayfly::nn {

/// One tensor inside a flat array, in PyTorch's element order (convolutions OIHW, linear OI).
struct TensorInfo {
  std::string name;  ///< torchvision-style, for example "layer1.0.conv1.weight"
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;  ///< in elements
  std::size_t size = 0;    ///< in elements
};

/// A convolution (bias-free, square kernel) followed by batch norm, as all our networks have it.
struct ConvSpec {
  int in_channels = 0;
  int out_channels = 0;
  int kernel = 3;
  int stride = 1;
  int padding = 1;
  int input_size = 0;            ///< height = width of the input
  std::size_t weight = 0;        ///< index into Model::parameters; scale and shift follow it
  std::size_t running_mean = 0;  ///< index into Model::statistics; the variance follows it
};

/// One basic residual block: conv-bn-relu, conv-bn, shortcut added, relu.
struct BlockSpec {
  ConvSpec conv1;
  ConvSpec conv2;
  /// Option A of He et al. 2016, section 4.2: where the shape changes the shortcut takes every
  /// second pixel and pads the new channels with zeros (half before, half after), without
  /// parameters.
  bool downsample = false;
};

/// A CIFAR ResNet (He et al. 2016, section 4.2): 3x3 stem with 16 channels, three stages of n
/// blocks with 16, 32 and 64 channels, global average pooling, linear classifier; depth = 6 n + 2.
struct Model {
  std::string name;  ///< "resnet20", ...
  int classes = 10;
  int image_size = 32;
  ConvSpec stem;
  std::vector<BlockSpec> blocks;
  int features = 64;                  ///< input of the classifier
  std::size_t classifier_weight = 0;  ///< index into parameters; the bias follows it

  std::vector<TensorInfo> parameters;  ///< in forward order; flat size parameter_count
  std::vector<TensorInfo> statistics;  ///< running mean and variance of every batch norm, in order
  std::size_t parameter_count = 0;
  std::size_t statistic_count = 0;
};

/// The names that make_model understands.
[[nodiscard]] std::vector<std::string> model_names();

/// Builds the description of a network. kInvalidInput for an unknown name (the nearest is
/// suggested) or class count.
[[nodiscard]] Result<Model> make_model(const std::string& name, int classes);

}  // namespace mayfly::nn
