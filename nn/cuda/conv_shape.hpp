#pragma once

// Private to nn/cuda: the description of a convolution from which it is planned. Pure.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "nn/cuda/kernels/kernels.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda {

/// The three convolutions of a training step, one per row of the chain rule, and the two that cuDNN
/// fuses with parts of batch norm, where it offers that.
enum class ConvPass {
  kForward,         ///< y from x and w
  kInputGradient,   ///< dx from dy and w
  kWeightGradient,  ///< dw from x and dy
  kForwardSums,     ///< kForward, and the sums over all rows of y and of y * y
  /// kInputGradient where x is ReLU(norm(r)): g, dx where that ReLU was active, and the sums over
  /// all rows of g and of g * normalised r. Whether it was active is computed again from r.
  kInputGradientSums,
};

inline constexpr ConvPass kConvPasses[] = {ConvPass::kForward, ConvPass::kInputGradient,
                                           ConvPass::kWeightGradient, ConvPass::kForwardSums,
                                           ConvPass::kInputGradientSums};

/// Whether a pass is more than its convolution. Such a pass may be unavailable: then the
/// convolution is computed alone, and Mayfly's kernels compute the rest.
[[nodiscard]] constexpr bool is_fused(ConvPass pass) {
  return pass == ConvPass::kForwardSums || pass == ConvPass::kInputGradientSums;
}

[[nodiscard]] const char* to_string(ConvPass pass);

/// Layers of equal shape share a plan.
struct ConvShape {
  std::int64_t images = 0;
  std::int64_t in_channels = 0;  ///< as stored
  std::int64_t out_channels = 0;
  std::int64_t kernel = 0;
  std::int64_t stride = 0;
  std::int64_t padding = 0;
  std::int64_t input_size = 0;   ///< height = width
  std::int64_t output_size = 0;  ///< height = width

  [[nodiscard]] static ConvShape of(const ConvSpec& spec, std::uint32_t images);

  [[nodiscard]] std::size_t input_elements() const {
    return static_cast<std::size_t>(images * input_size * input_size * in_channels);
  }
  [[nodiscard]] std::size_t output_elements() const {
    return static_cast<std::size_t>(images * output_size * output_size * out_channels);
  }
  [[nodiscard]] std::size_t filter_elements() const {
    return static_cast<std::size_t>(out_channels * kernel * kernel * in_channels);
  }
  /// Values per channel of the output.
  [[nodiscard]] std::size_t output_rows() const {
    return static_cast<std::size_t>(images * output_size * output_size);
  }
  /// Human-readable: "8 x 64 x 56 x 56 -> 128, 3x3 stride 2".
  [[nodiscard]] std::string text() const;

  auto operator<=>(const ConvShape&) const = default;
};

/// One pass of a convolution in one type; equal ones share a plan.
struct ConvKey {
  Dtype dtype = Dtype::kFp32;
  ConvShape shape;
  ConvPass pass = ConvPass::kForward;

  auto operator<=>(const ConvKey&) const = default;
};

/// The only type that cuDNN 9.19 offers fused passes for, on an H200.
inline constexpr Dtype kFusedDtype = Dtype::kFp16;

/// Every convolution that a training step of `model` may compute, once: all passes of all layers
/// except the gradient of the images. Fused passes are among them in kFusedDtype only; cuDNN may
/// offer some of them and not others.
[[nodiscard]] std::set<ConvKey> convolutions_of_step(const Model& model, std::uint32_t microbatch,
                                                     Dtype dtype);

/// "the forward pass of 8 x 64 x 56 x 56 -> 128, 3x3 stride 2 in fp16"
[[nodiscard]] std::string text_of(const ConvKey& key);

/// The addresses of the tensors of one convolution, 16-byte aligned. The ConvPass determines which
/// of them is written and which are gradients.
struct ConvTensors {
  void* x = nullptr;
  void* filter = nullptr;  ///< out channels, rows, columns, in channels
  void* y = nullptr;
  void* workspace = nullptr;
  // Of fused passes:
  float* sums = nullptr;         ///< two of each channel, first all first ones; norm_total_bytes()
  const void* norm_x = nullptr;  ///< the r of kInputGradientSums, and its norm's
  NormFactors norm = {};
};

}  // namespace mayfly::nn::cuda
