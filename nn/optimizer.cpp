#include "nn/optimizer.hpp"

#include <cmath>

#include "base/check.hpp"

// Highway compiles the part between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE once for every
// instruction set, by including this file again.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/optimizer.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Instruction sets without a fused multiply-add use only the scalar loop, in which std::fma rounds
// once on every processor: slower, but with the same bits.
HWY_ATTR void sgd(const SgdOptions& options, float rate, const float* gradient, float* parameters,
                  float* velocity, std::size_t size) {
  std::size_t i = 0;
#if HWY_NATIVE_FMA
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto decay = hn::Set(d, options.weight_decay);
  const auto momentum = hn::Set(d, options.momentum);
  const auto step = hn::Set(d, rate);
  for (; i + lanes <= size; i += lanes) {
    const auto w = hn::LoadU(d, parameters + i);
    const auto decayed = hn::MulAdd(decay, w, hn::LoadU(d, gradient + i));
    const auto v = hn::MulAdd(momentum, hn::LoadU(d, velocity + i), decayed);
    hn::StoreU(v, d, velocity + i);
    hn::StoreU(hn::NegMulAdd(step, v, w), d, parameters + i);
  }
#endif
  for (; i < size; ++i) {
    const float decayed = std::fma(options.weight_decay, parameters[i], gradient[i]);
    velocity[i] = std::fma(options.momentum, velocity[i], decayed);
    parameters[i] = std::fma(-rate, velocity[i], parameters[i]);
  }
}

HWY_ATTR void blend(float rate, const float* batch, float* running, std::size_t size) {
  const float keep = 1.0F - rate;
  std::size_t i = 0;
#if HWY_NATIVE_FMA
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (; i + lanes <= size; i += lanes) {
    const auto kept = hn::Mul(hn::Set(d, keep), hn::LoadU(d, running + i));
    hn::StoreU(hn::MulAdd(hn::Set(d, rate), hn::LoadU(d, batch + i), kept), d, running + i);
  }
#endif
  for (; i < size; ++i) {
    const float kept = keep * running[i];
    running[i] = std::fma(rate, batch[i], kept);
  }
}

}  // namespace mayfly::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::nn {
namespace {

HWY_EXPORT(sgd);
HWY_EXPORT(blend);

}  // namespace

void sgd_update(const SgdOptions& options, float learning_rate, std::span<const float> gradient,
                std::span<float> parameters, std::span<float> momentum) {
  ENSURE(gradient.size() == parameters.size() && momentum.size() == parameters.size(),
         "gradient, parameters and momentum cover the same elements");
  HWY_DYNAMIC_DISPATCH(sgd)
  (options, learning_rate, gradient.data(), parameters.data(), momentum.data(), gradient.size());
}

void update_running_statistics(float rate, std::span<const float> batch, std::span<float> running) {
  ENSURE(batch.size() == running.size(), "batch and running statistics cover the same elements");
  HWY_DYNAMIC_DISPATCH(blend)(rate, batch.data(), running.data(), batch.size());
}

}  // namespace mayfly::nn
#endif  // HWY_ONCE
