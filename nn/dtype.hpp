#pragma once

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace mayfly::nn {

/// The type in which activations and their gradients are stored and multiplied. Weights, their
/// gradients, the optimizer and all statistics are always fp32, and products are summed in fp32.
enum class Dtype {
  kFp32,
  kBf16,  ///< bfloat16, rounded to nearest even
  kFp16,  ///< IEEE binary16, rounded to nearest even; GPUs only, with a loss scale (loss_scale.hpp)
};

[[nodiscard]] constexpr std::size_t bytes_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? 4 : 2;
}

[[nodiscard]] constexpr const char* name_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? "fp32" : dtype == Dtype::kBf16 ? "bf16" : "fp16";
}

/// "fp32", "bf16" or "fp16"; kInvalidInput for another word.
[[nodiscard]] inline Result<Dtype> parse_dtype(const std::string& name) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    if (name == name_of(dtype)) {
      return dtype;
    }
  }
  return Error{Errc::kInvalidInput, "unknown dtype \"" + name + "\" (fp32, bf16 or fp16)"};
}

}  // namespace mayfly::nn
