#include "nn/model_builder.hpp"

#include <utility>

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

}  // namespace mayfly::nn
