#include "nn/cuda/stored_value.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

namespace mayfly::nn::cuda {

void store(Dtype dtype, float value, std::byte* to) {
  if (dtype == Dtype::kFp32) {
    std::memcpy(to, &value, sizeof value);
  } else if (dtype == Dtype::kBf16) {
    const __nv_bfloat16 half = __float2bfloat16(value);
    std::memcpy(to, &half, sizeof half);
  } else {
    const __half half = __float2half(value);
    std::memcpy(to, &half, sizeof half);
  }
}

float load(Dtype dtype, const std::byte* from) {
  if (dtype == Dtype::kFp32) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (dtype == Dtype::kBf16) {
    __nv_bfloat16 half;
    std::memcpy(&half, from, sizeof half);
    return __bfloat162float(half);
  }
  __half half;
  std::memcpy(&half, from, sizeof half);
  return __half2float(half);
}

}  // namespace mayfly::nn::cuda
