// The interface of the kernels, with the same arithmetic on the CPU.

#include <algorithm>

#include "collectives/nccl/device_kernels.hpp"
#include "collectives/plan/exact_sum_math.hpp"
#include "nn/cuda/kernels/kernels.hpp"

namespace mayfly::collectives::device_kernels {
namespace {

namespace math = exact_sum_math;

template <typename Map>
int map_all(void* data, std::size_t count, const Map& map) {
  auto* const integers = static_cast<std::int32_t*>(data);
  std::transform(integers, integers + count, integers, map);
  return 0;
}

}  // namespace

int load() {
  return 0;
}

int quantize(const float* gradient, const Blocks& blocks, int bits, bool add, std::int32_t* sums,
             std::int32_t* observed, QuantizeFlags* flags, void* /*stream*/) {
  for (std::uint32_t b = blocks.first; b < blocks.last; ++b) {
    const float scale = math::scale_of(blocks.exponents[b], bits);
    std::uint32_t largest = 0;
    for (std::uint32_t i = blocks.offsets[b]; i < blocks.offsets[b + 1]; ++i) {
      const float g = gradient[i];
      largest = std::max(largest, math::magnitude(g));
      sums[i] = math::add(add ? sums[i] : 0, math::quantize(g, scale));
    }
    const std::int32_t needed = math::exponent_above(largest);
    observed[b] = add ? std::max(observed[b], needed) : needed;
    flags->overflows += math::overflows(largest, blocks.exponents[b]) ? 1 : 0;
    flags->nonfinite += math::is_nonfinite(largest) ? 1 : 0;
  }
  return 0;
}

int add_floats(const float* gradient, const Blocks& blocks, bool add, float* sums,
               QuantizeFlags* flags, void* /*stream*/) {
  for (std::uint32_t b = blocks.first; b < blocks.last; ++b) {
    std::uint32_t largest = 0;
    for (std::uint32_t i = blocks.offsets[b]; i < blocks.offsets[b + 1]; ++i) {
      largest = std::max(largest, math::magnitude(gradient[i]));
      sums[i] = math::sum(add ? sums[i] : 0.0F, gradient[i]);
    }
    flags->nonfinite += math::is_nonfinite(largest) ? 1 : 0;
  }
  return 0;
}

int dequantize(const std::int32_t* sums, const Blocks& blocks, int bits, float scale, float* out,
               void* /*stream*/) {
  for (std::uint32_t b = blocks.first; b < blocks.last; ++b) {
    const float factor = math::factor_of(blocks.exponents[b], bits, scale);
    for (std::uint32_t i = blocks.offsets[b]; i < blocks.offsets[b + 1]; ++i) {
      out[i] = math::dequantize(sums[i], factor);
    }
  }
  return 0;
}

int scale_floats(const float* sums, const Blocks& blocks, float scale, float* out,
                 void* /*stream*/) {
  for (std::uint32_t i = blocks.offsets[blocks.first]; i < blocks.offsets[blocks.last]; ++i) {
    out[i] = math::product(sums[i], scale);
  }
  return 0;
}

int to_ordered_integers(void* data, std::size_t count, void* /*stream*/) {
  return map_all(data, count, [](std::int32_t x) { return math::ordered(x); });
}

int from_ordered_integers(void* data, std::size_t count, void* /*stream*/) {
  return map_all(data, count, [](std::int32_t x) { return math::from_ordered(x); });
}

}  // namespace mayfly::collectives::device_kernels

namespace mayfly::nn::cuda {

const Kernels& device_kernels() {
  return host_kernels();
}

}  // namespace mayfly::nn::cuda
