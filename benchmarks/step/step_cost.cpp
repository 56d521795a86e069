#include "benchmarks/step/step_cost.hpp"

namespace mayfly::bench {
namespace {

constexpr double kWeightBytes = sizeof(float);

double value_bytes(nn::Dtype dtype) {
  return static_cast<double>(nn::bytes_of(dtype));
}

double square(int side) {
  return static_cast<double>(side) * side;
}

double output_values(const nn::ConvSpec& spec, std::size_t images) {
  return static_cast<double>(images) * spec.out_channels * square(spec.output_size());
}

double input_values(const nn::ConvSpec& spec, std::size_t images) {
  return static_cast<double>(images) * spec.in_channels * square(spec.input_size);
}

/// The cost of the passes after the stem, which store its output after the norm, and at the end of
/// each block, which add the shortcut. In backward both are part of a convolution's passes.
double elementwise_values(const nn::Model& model, std::size_t images) {
  const double stem = output_values(model.stem, images);
  double values = stem + (model.stem_pool ? stem / 4 : stem);
  for (const nn::BlockSpec& block : model.blocks) {
    values += 3 * output_values(block.convs.back(), images);
  }
  return values;
}

PassCost classifier_cost(const nn::Model& model, std::size_t images, nn::Dtype dtype) {
  constexpr int kPasses = 3;  // logits, gradient of the features, gradient of the weights
  const double multiply_adds = static_cast<double>(model.features) * model.classes;
  const double features = output_values(model.blocks.back().convs.back(), images);
  return {kPasses * 2 * multiply_adds * static_cast<double>(images),
          kPasses * multiply_adds * kWeightBytes + 2 * features * value_bytes(dtype)};
}

}  // namespace

LayerCost layer_cost(const nn::ConvSpec& spec, bool has_input_gradient, std::size_t images,
                     nn::Dtype dtype) {
  const double flops = 2 * output_values(spec, images) * square(spec.kernel) * spec.in_channels;
  const double in = input_values(spec, images) * value_bytes(dtype);
  const double out = output_values(spec, images) * value_bytes(dtype);
  const double weights = square(spec.kernel) * spec.in_channels * spec.out_channels * kWeightBytes;
  LayerCost cost;
  cost.forward = {flops, in + out + weights};
  // The gradient through the norm also reads the convolution's output; the gradient of the weights
  // reads the input again.
  cost.backward = {flops, 2 * out + in + weights};
  if (has_input_gradient) {
    cost.backward += {flops, in + weights};
  }
  return cost;
}

StepCost step_cost(const nn::Model& model, std::size_t images, nn::Dtype dtype) {
  StepCost cost;
  for (const nn::ConvSpec* spec : nn::convolutions_of(model)) {
    cost.layers.push_back(layer_cost(*spec, spec != &model.stem, images, dtype));
    cost.total += cost.layers.back().forward;
    cost.total += cost.layers.back().backward;
  }
  cost.total += classifier_cost(model, images, dtype);
  cost.total.bytes += elementwise_values(model, images) * value_bytes(dtype);
  return cost;
}

}  // namespace mayfly::bench
