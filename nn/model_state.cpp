#include "nn/model_state.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.hpp"
#include "base/random.hpp"

namespace mayfly::nn {
namespace {

/// A nearly normal deviate (mean 0, variance 1, within +-6): the sum of twelve uniform 16-bit
/// numbers. It is exact integer arithmetic up to one division by a power of two. The usual
/// transformations call log and cos, whose last bits differ between C libraries and CPUs, but
/// members on different machines must start with the same weights.
double normal_deviate(const CounterRandom& random, std::uint64_t index) {
  constexpr int kDraws = 3;  // of four 16-bit numbers each
  constexpr std::int64_t kTwiceMean = 12 * 65535;
  constexpr std::uint64_t kEven = 0x0000'ffff'0000'ffffULL;  // two lanes with room for the sum
  std::uint64_t lanes = 0;
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    const std::uint64_t bits = random.bits(index * kDraws + draw);
    lanes += (bits & kEven) + ((bits >> 16) & kEven);
  }
  const auto sum = static_cast<std::int64_t>((lanes & 0xffff'ffff) + (lanes >> 32));
  return static_cast<double>(2 * sum - kTwiceMean) * 0x1.0p-17;
}

void fill_normal(const CounterRandom& random, double deviation, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(deviation * normal_deviate(random, i));
  }
}

void fill_uniform(const CounterRandom& random, double bound, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(bound * (2.0 * random.unit(i) - 1.0));
  }
}

void initialise_parameters(const Model& model, const CounterRandom& random,
                           std::span<float> parameters) {
  const auto slice = [&](std::size_t index) {
    return parameters.subspan(model.parameters[index].offset, model.parameters[index].size);
  };
  const auto convolution = [&](const ConvSpec& conv) {
    const double fan_out = conv.out_channels * conv.kernel * conv.kernel;
    fill_normal(random.split(model.parameters[conv.weight].name), std::sqrt(2.0 / fan_out),
                slice(conv.weight));
    std::ranges::fill(slice(conv.weight + 1), 1.0F);
  };
  for (const ConvSpec* conv : convolutions_of(model)) {
    convolution(*conv);
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(model.features));
  for (std::size_t i = model.classifier_weight; i < model.parameters.size(); ++i) {
    fill_uniform(random.split(model.parameters[i].name), bound, slice(i));
  }
}

}  // namespace

ModelState make_undrawn_state(const Model& model, std::size_t exponent_count, std::int32_t unset) {
  ModelState state;
  state.parameters = AlignedBuffer<float>(model.parameter_count);  // zeroed
  state.momentum = AlignedBuffer<float>(model.parameter_count);
  state.statistics = AlignedBuffer<float>(model.statistic_count);
  state.exponents.assign(exponent_count, unset);
  for (std::size_t variance = 1; variance < model.statistics.size(); variance += 2) {
    const TensorInfo& info = model.statistics[variance];
    std::ranges::fill(state.statistics.span().subspan(info.offset, info.size), 1.0F);
  }
  state.is_drawn = false;
  return state;
}

void draw_weights(const Model& model, std::uint64_t seed, ModelState& state) {
  if (state.is_drawn) {
    return;
  }
  ENSURE(state.committed == Step{0}, "weights are drawn before the first step");
  initialise_parameters(model, CounterRandom(seed).split("initial-state"), state.parameters.span());
  state.is_drawn = true;
}

ModelState make_initial_state(const Model& model, std::uint64_t seed, std::size_t exponent_count,
                              std::int32_t unset) {
  ModelState state = make_undrawn_state(model, exponent_count, unset);
  draw_weights(model, seed, state);
  return state;
}

Digest digest_of(const ModelState& state) {
  ENSURE(state.is_drawn, "only a real state is compared");
  Digester digester;
  digester.add_value(value(state.committed));
  digester.add(std::as_bytes(state.parameters.span()));
  digester.add(std::as_bytes(state.momentum.span()));
  digester.add(std::as_bytes(state.statistics.span()));
  digester.add(std::as_bytes(std::span(state.exponents)));
  if (state.loss_scale.has_value()) {
    digester.add_value(state.loss_scale->exponent);
    digester.add_value(state.loss_scale->steps);
  }
  return digester.finish();
}

}  // namespace mayfly::nn
