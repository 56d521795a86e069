#include "nn/cuda/step_layers.hpp"

namespace mayfly::nn::cuda {

std::vector<std::string> describe_layers(const Model& model, std::uint32_t microbatch,
                                         StepPlan& plan) {
  const auto parameter = [&](std::size_t index) { return model.parameters[index].offset; };
  std::vector<std::string> names;
  std::size_t packed_elements = 0;
  for (const ConvSpec* spec : convolutions_of(model)) {
    Layer layer;
    layer.conv = ConvShape::of(*spec, microbatch);
    layer.out = {microbatch, static_cast<std::uint32_t>(spec->output_size()),
                 static_cast<std::uint32_t>(spec->out_channels)};
    layer.weight = parameter(spec->weight);
    layer.scale = parameter(spec->weight + 1);
    layer.shift = parameter(spec->weight + 2);
    layer.mean = model.statistics[spec->running_mean].offset;
    layer.variance = model.statistics[spec->running_mean + 1].offset;
    plan.filters.push_back({.offset = layer.weight,
                            .packed_offset = packed_elements,
                            .out_channels = static_cast<std::uint32_t>(spec->out_channels),
                            .in_channels = static_cast<std::uint32_t>(spec->in_channels),
                            .packed_channels = static_cast<std::uint32_t>(layer.conv.in_channels),
                            .kernel = static_cast<std::uint32_t>(spec->kernel)});
    packed_elements += layer.conv.filter_elements();
    const std::string& weight = model.parameters[spec->weight].name;
    names.push_back(weight.substr(0, weight.rfind('.')));
    plan.layers.push_back(layer);
  }
  plan.filter_blocks = number_filter_blocks(plan.filters);
  // No network ends with a projection, so the last layer is that before the classifier.
  const ActivationShape& last = plan.layers.back().out;
  plan.classifier = {microbatch, last.width, last.channels,
                     static_cast<std::uint32_t>(model.classes)};
  plan.classifier_weight = parameter(model.classifier_weight);
  plan.classifier_bias = parameter(model.classifier_weight + 1);
  return names;
}

}  // namespace mayfly::nn::cuda
