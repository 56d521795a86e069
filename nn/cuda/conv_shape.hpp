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

/// The three convolutions of a training step, one per row of the chain rule.
enum class ConvPass {
  kForward,         ///< y from x and w
  kInputGradient,   ///< dx from dy and w
  kWeightGradient,  ///< dw from x and dy
};

inline constexpr ConvPass kConvPasses[] = {ConvPass::kForward, ConvPass::kInputGradient,
                                           ConvPass::kWeightGradient};

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

/// Every convolution that a training step of `model` may compute, once: all passes of all layers
/// except the gradient of the images.
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
};

}  // namespace mayfly::nn::cuda
