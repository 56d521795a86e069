#include "nn/model_state.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>

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

/// The header of a packed state.
struct PackedHeader {
  std::uint64_t committed = 0;
  std::uint64_t parameters = 0;
  std::uint64_t statistics = 0;
  std::uint64_t exponents = 0;
};

PackedHeader header_of(const ModelState& state) {
  return {value(state.committed), state.parameters.size(), state.statistics.size(),
          state.exponents.size()};
}

const std::byte* extract(const std::byte* in, std::span<std::byte> bytes) {
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), in, bytes.size());
  }
  return in + bytes.size();
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

std::size_t packed_state_size(const ModelState& like) {
  return sizeof(PackedHeader) +
         sizeof(float) * (2 * like.parameters.size() + like.statistics.size()) +
         sizeof(std::int32_t) * like.exponents.size() +
         (like.loss_scale.has_value() ? sizeof(LossScale) : 0);
}

void pack_state_part(const ModelState& state, std::size_t first, std::span<std::byte> out) {
  ENSURE(first + out.size() <= packed_state_size(state), "a part lies inside the packed state");
  ENSURE(state.momentum.size() == state.parameters.size(), "momentum covers the parameters");
  ENSURE(state.is_drawn, "only a real state is given to others");
  const PackedHeader header = header_of(state);
  const LossScale scale = state.loss_scale.value_or(LossScale{});
  const std::array<ByteSpan, 6> arrays = {
      std::as_bytes(std::span(&header, 1)),
      std::as_bytes(state.parameters.span()),
      std::as_bytes(state.momentum.span()),
      std::as_bytes(state.statistics.span()),
      std::as_bytes(std::span(state.exponents)),
      std::as_bytes(std::span(&scale, state.loss_scale.has_value() ? 1 : 0))};
  std::size_t at = 0;  // where the array begins in the packed state
  for (const ByteSpan array : arrays) {
    const std::size_t begin = std::max(first, at);
    const std::size_t end = std::min(first + out.size(), at + array.size());
    if (begin < end) {
      std::memcpy(out.data() + (begin - first), array.data() + (begin - at), end - begin);
    }
    at += array.size();
  }
}

Result<void> unpack_state(ByteSpan packed, ModelState& state) {
  PackedHeader header;
  const PackedHeader expected = header_of(state);
  if (packed.size() != packed_state_size(state)) {
    return Error{Errc::kCorrupt, "a packed state of " + std::to_string(packed.size()) +
                                     " bytes; expected " +
                                     std::to_string(packed_state_size(state))};
  }
  const std::byte* next = extract(packed.data(), std::as_writable_bytes(std::span(&header, 1)));
  if (header.parameters != expected.parameters || header.statistics != expected.statistics ||
      header.exponents != expected.exponents) {
    return Error{Errc::kCorrupt, "a packed state of another layout"};
  }
  LossScale scale;
  const std::size_t scale_bytes = state.loss_scale.has_value() ? sizeof scale : 0;
  extract(packed.data() + packed.size() - scale_bytes,
          std::as_writable_bytes(std::span(&scale, 1)).first(scale_bytes));
  if (!scale.is_valid()) {
    return Error{Errc::kCorrupt, "a packed state with an impossible loss scale"};
  }
  state.committed = Step{header.committed};
  if (state.loss_scale.has_value()) {
    state.loss_scale = scale;
  }
  next = extract(next, std::as_writable_bytes(state.parameters.span()));
  next = extract(next, std::as_writable_bytes(state.momentum.span()));
  next = extract(next, std::as_writable_bytes(state.statistics.span()));
  extract(next, std::as_writable_bytes(std::span(state.exponents)));
  state.is_drawn = true;
  return {};
}

}  // namespace mayfly::nn
