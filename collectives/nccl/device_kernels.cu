#include <cuda_runtime_api.h>

#include "collectives/nccl/device_kernels.hpp"
#include "collectives/plan/exact_sum_math.hpp"

namespace mayfly::collectives::device_kernels {
namespace {

namespace math = exact_sum_math;

// A block of the layout has at most 1024 elements: one thread block, four elements for each thread,
// all loaded before the first is used.
constexpr int kThreads = 256;
constexpr int kEach = 4;
constexpr int kWarps = kThreads / 32;

// The largest of all threads' values, known to thread 0.
__device__ std::uint32_t largest_of_block(std::uint32_t mine) {
  __shared__ std::uint32_t of_warp[kWarps];
  const std::uint32_t warp = __reduce_max_sync(0xffffffffU, mine);
  if (threadIdx.x % 32 == 0) {
    of_warp[threadIdx.x / 32] = warp;
  }
  __syncthreads();
  std::uint32_t largest = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kWarps; ++i) {
      largest = of_warp[i] > largest ? of_warp[i] : largest;
    }
  }
  return largest;
}

__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const float* __restrict__ gradient, Blocks blocks, int bits, bool add,
                    std::int32_t* __restrict__ sums, std::int32_t* __restrict__ observed,
                    QuantizeFlags* flags) {
  const std::uint32_t block = blocks.first + blockIdx.x;
  const std::uint32_t begin = blocks.offsets[block];
  const std::uint32_t end = blocks.offsets[block + 1];
  const std::int32_t exponent = blocks.exponents[block];
  const float scale = math::scale_of(exponent, bits);
  float value[kEach];
  std::int32_t before[kEach];
  for (int k = 0; k < kEach; ++k) {
    const std::uint32_t i = begin + threadIdx.x + k * kThreads;
    value[k] = i < end ? gradient[i] : 0.0F;
    before[k] = add && i < end ? sums[i] : 0;
  }
  std::uint32_t largest = 0;
  for (int k = 0; k < kEach; ++k) {
    const std::uint32_t i = begin + threadIdx.x + k * kThreads;
    const std::uint32_t magnitude = math::magnitude(value[k]);
    largest = magnitude > largest ? magnitude : largest;
    if (i < end) {
      sums[i] = math::add(before[k], math::quantize(value[k], scale));
    }
  }
  largest = largest_of_block(largest);
  if (threadIdx.x == 0) {
    // One thread block for each block, one microbatch after the other: no atomics for `observed`.
    const std::int32_t needed = math::exponent_above(largest);
    observed[block] = add && observed[block] > needed ? observed[block] : needed;
    if (math::overflows(largest, exponent)) {
      atomicAdd(&flags->overflows, 1U);
    }
    if (math::is_nonfinite(largest)) {
      atomicAdd(&flags->nonfinite, 1U);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    add_floats_kernel(const float* __restrict__ gradient, Blocks blocks, bool add,
                      float* __restrict__ sums, QuantizeFlags* flags) {
  const std::uint32_t block = blocks.first + blockIdx.x;
  const std::uint32_t begin = blocks.offsets[block];
  const std::uint32_t end = blocks.offsets[block + 1];
  std::uint32_t largest = 0;
  for (std::uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const float value = gradient[i];
    const std::uint32_t magnitude = math::magnitude(value);
    largest = magnitude > largest ? magnitude : largest;
    sums[i] = math::sum(add ? sums[i] : 0.0F, value);
  }
  largest = largest_of_block(largest);
  if (threadIdx.x == 0 && math::is_nonfinite(largest)) {
    atomicAdd(&flags->nonfinite, 1U);
  }
}

__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const std::int32_t* sums, Blocks blocks, int bits, float scale, float* out) {
  const std::uint32_t block = blocks.first + blockIdx.x;
  const std::uint32_t begin = blocks.offsets[block];
  const std::uint32_t end = blocks.offsets[block + 1];
  const float factor = math::factor_of(blocks.exponents[block], bits, scale);
  for (std::uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
    out[i] = math::dequantize(sums[i], factor);
  }
}

__global__ void __launch_bounds__(kThreads)
    scale_floats_kernel(const float* sums, Blocks blocks, float scale, float* out) {
  const std::uint32_t block = blocks.first + blockIdx.x;
  const std::uint32_t begin = blocks.offsets[block];
  const std::uint32_t end = blocks.offsets[block + 1];
  for (std::uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
    out[i] = math::product(sums[i], scale);
  }
}

template <bool kForth>
__global__ void __launch_bounds__(kThreads) order_kernel(std::int32_t* data, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    data[i] = kForth ? math::ordered(data[i]) : math::from_ordered(data[i]);
  }
}

template <bool kForth>
int launch_order(void* data, std::size_t count, void* stream) {
  constexpr std::size_t kGridMax = 1024;
  const std::size_t wanted = (count + kThreads - 1) / kThreads;
  if (count == 0) {
    return cudaSuccess;
  }
  order_kernel<kForth>
      <<<static_cast<unsigned>(wanted < kGridMax ? wanted : kGridMax), kThreads, 0,
         static_cast<cudaStream_t>(stream)>>>(static_cast<std::int32_t*>(data), count);
  return cudaGetLastError();
}

template <typename Kernel>
int load_one(Kernel* kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace

int load() {
  for (const int failed : {load_one(quantize_kernel), load_one(add_floats_kernel),
                           load_one(dequantize_kernel), load_one(scale_floats_kernel),
                           load_one(order_kernel<true>), load_one(order_kernel<false>)}) {
    if (failed != cudaSuccess) {
      return failed;
    }
  }
  return cudaSuccess;
}

int quantize(const float* gradient, const Blocks& blocks, int bits, bool add, std::int32_t* sums,
             std::int32_t* observed, QuantizeFlags* flags, void* stream) {
  if (blocks.first >= blocks.last) {
    return cudaSuccess;
  }
  quantize_kernel<<<blocks.last - blocks.first, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      gradient, blocks, bits, add, sums, observed, flags);
  return cudaGetLastError();
}

int add_floats(const float* gradient, const Blocks& blocks, bool add, float* sums,
               QuantizeFlags* flags, void* stream) {
  if (blocks.first >= blocks.last) {
    return cudaSuccess;
  }
  add_floats_kernel<<<blocks.last - blocks.first, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      gradient, blocks, add, sums, flags);
  return cudaGetLastError();
}

int dequantize(const std::int32_t* sums, const Blocks& blocks, int bits, float scale, float* out,
               void* stream) {
  if (blocks.first >= blocks.last) {
    return cudaSuccess;
  }
  dequantize_kernel<<<blocks.last - blocks.first, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      sums, blocks, bits, scale, out);
  return cudaGetLastError();
}

int scale_floats(const float* sums, const Blocks& blocks, float scale, float* out, void* stream) {
  if (blocks.first >= blocks.last) {
    return cudaSuccess;
  }
  scale_floats_kernel<<<blocks.last - blocks.first, kThreads, 0,
                        static_cast<cudaStream_t>(stream)>>>(sums, blocks, scale, out);
  return cudaGetLastError();
}

int to_ordered_integers(void* data, std::size_t count, void* stream) {
  return launch_order<true>(data, count, stream);
}

int from_ordered_integers(void* data, std::size_t count, void* stream) {
  return launch_order<false>(data, count, stream);
}

}  // namespace mayfly::collectives::device_kernels
