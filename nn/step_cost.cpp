#include "nn/step_cost.hpp"

namespace mayfly::nn {
namespace {

constexpr double kBytesPerValue = sizeof(float);

double square(int side) {
  return static_cast<double>(side) * side;
}

double output_values(const ConvSpec& spec, std::size_t images) {
  return static_cast<double>(images) * spec.out_channels * square(spec.output_size());
}

double input_values(const ConvSpec& spec, std::size_t images) {
  return static_cast<double>(images) * spec.in_channels * square(spec.input_size);
}

/// Behind the stem, where its output is stored after the norm, and at the end of each block, where
/// the shortcut is added: in backward both are part of a convolution's passes.
double elementwise_bytes(const Model& model, std::size_t images) {
  const double stem = output_values(model.stem, images);
  double values = stem + (model.stem_pool ? stem / 4 : stem);
  for (const BlockSpec& block : model.blocks) {
    values += 3 * output_values(block.convs.back(), images);
  }
  return values * kBytesPerValue;
}

PassCost classifier_cost(const Model& model, std::size_t images) {
  constexpr int kPasses = 3;  // logits, gradient of the features, gradient of the weights
  const double multiply_adds = static_cast<double>(model.features) * model.classes;
  const double features = output_values(model.blocks.back().convs.back(), images);
  return {kPasses * 2 * multiply_adds * static_cast<double>(images),
          (kPasses * multiply_adds + 2 * features) * kBytesPerValue};
}

}  // namespace

LayerCost layer_cost(const ConvSpec& spec, bool has_input_gradient, std::size_t images) {
  const double in = input_values(spec, images);
  const double out = output_values(spec, images);
  const double weights = square(spec.kernel) * spec.in_channels * spec.out_channels;
  const double flops = 2 * out * square(spec.kernel) * spec.in_channels;
  LayerCost cost;
  cost.forward = {flops, (in + out + weights) * kBytesPerValue};
  // The gradient through the norm takes the convolution's output too; the gradient of the weights
  // takes the input again.
  cost.backward = {flops, (2 * out + in + weights) * kBytesPerValue};
  if (has_input_gradient) {
    cost.backward += {flops, (in + weights) * kBytesPerValue};
  }
  return cost;
}

StepCost step_cost(const Model& model, std::size_t images) {
  StepCost cost;
  for (const ConvSpec* spec : convolutions_of(model)) {
    cost.layers.push_back(layer_cost(*spec, spec != &model.stem, images));
    cost.total += cost.layers.back().forward;
    cost.total += cost.layers.back().backward;
  }
  cost.total += classifier_cost(model, images);
  cost.total.bytes += elementwise_bytes(model, images);
  return cost;
}

}  // namespace mayfly::nn
