#pragma once

// Private to nn: builds the descriptions of the network families.

#include <cstdint>
#include <string>
#include <vector>

#include "nn/model.hpp"

namespace mayfly::nn {

/// Shape of a convolution without the places of its tensors.
struct ConvGeometry {
  int in_channels;
  int out_channels;
  int kernel;
  int stride;
  int input_size;
};

/// Appends tensors to a model's flat layouts while the network is described from front to back.
class ModelBuilder {
 public:
  explicit ModelBuilder(Model& model) : model_(model) {}

  /// A convolution padded so that stride 1 keeps the size, and the norm behind it; `conv` and
  /// `norm` are the names of the two modules, for example "layer1.0.conv1" and "layer1.0.bn1".
  ConvSpec conv_and_norm(const std::string& conv, const std::string& norm,
                         const ConvGeometry& geometry);

  /// The classifier "fc" behind `features` channels; always the last call.
  void classifier(int features);

 private:
  void parameter(std::string name, std::vector<std::int64_t> shape);
  void statistic(std::string name, int channels);

  Model& model_;
};

/// A network of the CIFAR family; name, classes and image size of `model` are set by the caller.
void describe_cifar_resnet(Model& model, int depth);

/// The same for the ImageNet family; depth 18, 34 or 50.
void describe_imagenet_resnet(Model& model, int depth);

}  // namespace mayfly::nn
