#pragma once

// The description of a network, independent of any device: its layers, tensors and names. The
// kernels are in nn/cpu and nn/cuda; both use the flat layouts declared here.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace mayfly::nn {

/// One tensor inside a flat array, in PyTorch's element order (convolutions OIHW, linear OI).
struct TensorInfo {
  std::string name;  ///< torchvision's, for example "layer1.0.conv1.weight"
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;  ///< in elements
  std::size_t size = 0;    ///< in elements
};

/// A convolution (bias-free, square kernel) followed by batch norm, as in all supported networks.
struct ConvSpec {
  int in_channels = 0;
  int out_channels = 0;
  int kernel = 3;
  int stride = 1;
  int padding = 1;
  int input_size = 0;            ///< height = width of the input
  std::size_t weight = 0;        ///< index into Model::parameters; scale and shift follow it
  std::size_t running_mean = 0;  ///< index into Model::statistics; the variance follows it

  /// Height = width of the output.
  [[nodiscard]] int output_size() const { return (input_size + 2 * padding - kernel) / stride + 1; }
};

/// One residual block: its convolutions in order, each with its norm and all but the last with a
/// ReLU behind it; then the shortcut is added and the last ReLU follows.
struct BlockSpec {
  std::vector<ConvSpec> convs;  ///< two (basic block) or three (bottleneck)
  /// A 1x1 convolution with norm as shortcut (option B of He et al. 2016, section 4.2), where the
  /// ImageNet networks change the shape.
  std::optional<ConvSpec> projection;
  /// Option A, where the CIFAR networks change the shape: the shortcut takes every second pixel and
  /// pads the new channels with zeros (half before, half after), without parameters.
  bool downsample = false;
};

/// A residual network (He et al. 2016): stem, blocks, global average pooling, linear classifier.
///
/// CIFAR family (section 4.2; resnet20, 32, 44, 56, 110): 3x3 stem with 16 channels, three stages
/// of n basic blocks with 16, 32 and 64 channels; depth = 6 n + 2.
///
/// ImageNet family (table 1; resnet18, 34, 50): 7x7 stride-2 stem with 64 channels and max pooling,
/// four stages that begin with 64, 128, 256 and 512 channels; basic blocks up to depth 34. The
/// bottlenecks of resnet50 have their stride in the 3x3 convolution ("v1.5", as torchvision has).
struct Model {
  std::string name;  ///< "resnet20", ...
  int classes = 10;
  int image_size = 32;  ///< height = width; the tensors do not depend on it
  ConvSpec stem;
  bool stem_pool = false;  ///< 3x3 max pooling, stride 2, padding 1, behind the stem's ReLU
  std::vector<BlockSpec> blocks;
  int features = 64;                  ///< input of the classifier
  std::size_t classifier_weight = 0;  ///< index into parameters; the bias follows it

  /// In forward order, flat size parameter_count; a projection comes after its block's
  /// convolutions.
  std::vector<TensorInfo> parameters;
  std::vector<TensorInfo> statistics;  ///< running mean and variance of every batch norm, in order
  std::size_t parameter_count = 0;
  std::size_t statistic_count = 0;
};

/// All convolutions in the order of their tensors: the stem, then block by block the convolutions
/// and the projection. The pointers live as long as `model` stays unchanged.
[[nodiscard]] std::vector<const ConvSpec*> convolutions_of(const Model& model);

/// The names that make_model understands.
[[nodiscard]] std::vector<std::string> model_names();

/// Builds the description of a network for images of `image_size` x `image_size` pixels; 0 is the
/// family's usual size, 32 or 224. kInvalidInput for an unknown name (the nearest is suggested), a
/// class count outside 2 to 65536, or a size that the network cannot halve evenly: the CIFAR family
/// takes multiples of 4 from 8, the ImageNet family multiples of 32; both up to 4096.
[[nodiscard]] Result<Model> make_model(const std::string& name, int classes, int image_size = 0);

/// The same with the class count of the data set that the family is named after, 10 or 1000.
[[nodiscard]] Result<Model> make_usual_model(const std::string& name, int image_size = 0);

}  // namespace mayfly::nn
