#include "nn/cuda/trial_norm.hpp"

#include <fmt/format.h>

#include "base/check.hpp"

namespace mayfly::nn::cuda {
namespace {

constexpr std::size_t kAlignment = 256;

ActivationShape norm_shape_of(const ConvKey& key) {
  const ConvShape& conv = key.shape;
  const bool is_before = key.pass == ConvPass::kInputGradientSums;
  return {static_cast<std::uint32_t>(conv.images),
          static_cast<std::uint32_t>(is_before ? conv.input_size : conv.output_size),
          static_cast<std::uint32_t>(is_before ? conv.in_channels : conv.out_channels)};
}

/// All of them, until one cannot be started.
template <typename... Calls>
Result<void> started(const Calls&... calls) {
  int failed = 0;
  ((failed = failed != 0 ? failed : calls()), ...);
  return failed == 0 ? Result<void>()
                     : Error{Errc::kUnsupported,
                             fmt::format("a kernel of batch norm could not be started: CUDA error "
                                         "{}",
                                         failed)};
}

}  // namespace

std::size_t TrialNorm::divide(const ConvKey& key, void* memory, Places& places) {
  const ActivationShape shape = norm_shape_of(key);
  const bool is_before = key.pass == ConvPass::kInputGradientSums;
  const auto activation = static_cast<std::size_t>(shape.elements()) * bytes_of(key.dtype);
  std::size_t used = 0;
  const auto take = [&](auto*& place, std::size_t bytes) {
    if (memory != nullptr) {
      place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(
          static_cast<std::byte*>(memory) + used);
    }
    used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  take(places.totals, norm_total_bytes(shape.channels));
  take(places.sums, norm_sum_bytes(shape));
  take(places.factors, norm_factor_bytes(shape.channels));
  take(places.parameters, 2 * shape.channels * sizeof(float));
  take(places.per_channel, 2 * shape.channels * sizeof(float));
  take(places.loss_input, sizeof(LossInput));
  take(places.x, is_before ? activation : 0);
  take(places.applied, is_before ? activation : 0);
  take(places.mask, is_before ? mask_bytes(shape) : 0);
  return used;
}

std::size_t TrialNorm::bytes_for(const ConvKey& key) {
  Places nowhere;
  return divide(key, nullptr, nowhere);
}

TrialNorm::TrialNorm(const ConvKey& key, const Kernels& kernels, void* memory)
    : key_(key), shape_(norm_shape_of(key)), kernels_(kernels) {
  ENSURE(is_fused(key.pass), "a plain convolution has no norm");
  (void)divide(key, memory, at_);
}

float TrialNorm::Input::value(float random, std::size_t i) const {
  constexpr float kShifts[] = {0, 3, -3};  // beyond what 1.1 times a deviation of 1.1 comes to
  constexpr float kGap = 0.1F;
  return is_shift ? kShifts[i % 3] : random + (random < 0 ? -kGap : kGap);
}

std::vector<TrialNorm::Input> TrialNorm::inputs() const {
  const std::size_t channels = shape_.channels;
  std::vector<Input> all = {{at_.parameters, channels},
                            {at_.parameters + channels, channels, Dtype::kFp32, true}};
  if (is_before()) {
    all.push_back({at_.x, static_cast<std::size_t>(shape_.elements()), key_.dtype});
  }
  return all;
}

Result<void> TrialNorm::prepare(Stream stream) const {
  if (!is_before()) {
    return {};
  }
  const std::uint32_t channels = shape_.channels;
  const NormFactors norm = factors();
  const NormApply apply{
      .x = at_.x, .scale = norm.scale, .shift = norm.shift, .out = at_.applied, .mask = at_.mask};
  return started([&] { return kernels_.norm_sums(shape_, key_.dtype, at_.x, at_.sums, stream); },
                 [&] {
                   return kernels_.norm_measure(shape_, at_.sums, at_.parameters,
                                                at_.parameters + channels, norm, at_.per_channel,
                                                at_.per_channel + channels, stream);
                 },
                 [&] { return kernels_.norm_apply(shape_, key_.dtype, apply, stream); });
}

ConvTensors TrialNorm::with(ConvTensors tensors) const {
  tensors.sums = at_.totals;
  tensors.norm_x = is_before() ? at_.x : nullptr;
  tensors.norm = factors();
  return tensors;
}

Result<void> TrialNorm::after_plain(void* out, bool masks, Stream stream) const {
  const std::uint32_t channels = shape_.channels;
  float* const first = at_.per_channel;
  float* const second = at_.per_channel + channels;
  const NormFactors norm = factors();
  if (!is_before()) {
    return started([&] { return kernels_.norm_sums(shape_, key_.dtype, out, at_.sums, stream); },
                   [&] {
                     return kernels_.norm_measure(shape_, at_.sums, at_.parameters,
                                                  at_.parameters + channels, norm, first, second,
                                                  stream);
                   });
  }
  const NormGradientSums sums{.gradient = out,
                              .mask = at_.mask,
                              .x = at_.x,
                              .mean = norm.mean,
                              .masked = masks ? out : nullptr};
  return started(
      [&] { return kernels_.norm_gradient_sums(shape_, key_.dtype, sums, at_.sums, stream); },
      [&] {
        return kernels_.norm_derive(shape_, at_.sums, at_.loss_input, norm, first, second, stream);
      });
}

Result<void> TrialNorm::after_fused(Stream stream) const {
  const std::uint32_t channels = shape_.channels;
  float* const first = at_.per_channel;
  float* const second = at_.per_channel + channels;
  return started([&] {
    return is_before() ? kernels_.norm_derive_totals(shape_, at_.totals, at_.loss_input, factors(),
                                                     first, second, stream)
                       : kernels_.norm_measure_totals(shape_, at_.totals, at_.parameters,
                                                      at_.parameters + channels, factors(), first,
                                                      second, stream);
  });
}

}  // namespace mayfly::nn::cuda
