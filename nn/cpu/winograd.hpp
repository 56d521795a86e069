#pragma once

// Private to nn/cpu: 3x3 convolutions with stride 1 and padding 1 by Winograd's minimal filtering
// F(4x4, 3x3) (Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks", with the
// points 0, 1, -1, 2, -2, infinity): 36 multiplications where the definition has 144.
//
// A pass walks over the image in rows of 4x4 tiles, a few at a time ("batch"). It copies rows of
// pixels into a small buffer with a border of zeros (applying norm and ReLU), transforms its tiles,
// multiplies 36 small matrices, transforms back, and passes the pixels on tile by tile (applying
// shortcut, mask and sums). So a tensor is read and written once per pass.
//
// All sums have a fixed order that depends on the shape and the instruction set only.

#include <algorithm>
#include <cstddef>

#include "nn/cpu/isa.hpp"
#include "nn/cpu/kernels.hpp"

namespace mayfly::nn::cpu {

inline constexpr std::size_t kWinogradPoints = 36;

struct WinogradShape {
  std::size_t images = 0;
  std::size_t in_channels = 0;   ///< a multiple of the block
  std::size_t out_channels = 0;  ///< a multiple of the block
  std::size_t size = 0;          ///< height = width, of input and output

  [[nodiscard]] std::size_t tiles() const { return (size + 3) / 4; }  ///< per side
  [[nodiscard]] std::size_t flat_weight_floats() const { return 9 * in_channels * out_channels; }
  /// Distance of the transformed weights of two points. Not a power of two: the transforms access
  /// all 36 points at once, which would then all use the same set of the cache.
  [[nodiscard]] std::size_t weight_stride() const { return in_channels * out_channels + 16; }
  /// Transformed weights.
  [[nodiscard]] std::size_t weight_floats() const { return kWinogradPoints * weight_stride(); }
  /// Floats of working memory for any pass.
  [[nodiscard]] std::size_t scratch_floats() const;
};

/// Transformed weights are one matrix per point, [channel of the input][channel of the output] of
/// the pass, in the order in which the pass reads them.
struct WinogradKernels {
  /// From flat OIHW weights to those of the forward pass.
  void (*transform_weights)(const WinogradShape&, const float* weights, float* transformed);
  /// The same for the gradient of the input.
  void (*transform_weights_for_backward)(const WinogradShape&, const float* weights,
                                         float* transformed);

  void (*forward)(const WinogradShape&, const ActivationRead&, const float* transformed,
                  const ActivationWrite&, float* scratch);

  /// Computes both gradients together, because both read the output's gradient. `transformed` is
  /// for backward; `weight_sums` is memory of weight_floats(); `weight_gradient` (flat OIHW) is
  /// overwritten.
  void (*backward)(const WinogradShape&, const ActivationRead&, const GradientRead&,
                   const float* transformed, const GradientWrite&, float* weight_sums,
                   float* weight_gradient, float* scratch);
};

/// With bf16 (AVX-512 only) tensors are read and written as bf16; all arithmetic stays fp32.
[[nodiscard]] const WinogradKernels& winograd_for(Isa isa, Dtype dtype);

// For winograd.cpp alone: how a pass is cut into batches of tile rows, and the layout of its
// working memory. The same for every instruction set.

inline constexpr std::size_t kWinogradTile = 4;   ///< output pixels of a tile, per side
inline constexpr std::size_t kWinogradPatch = 6;  ///< input pixels that they depend on

/// Tiles per batch: enough to use each transformed weight many times, few enough for the caches.
/// Narrow layers have few weights to keep in the cache; the weights of wide ones come from further
/// away.
[[nodiscard]] inline std::size_t batch_tiles_wanted(const WinogradShape& shape) {
  const std::size_t channels = std::max(shape.in_channels, shape.out_channels);
  return channels >= 128 ? 96 : channels > 16 ? 16 : 32;
}

/// Consecutive tile rows, counted through all images.
struct TileRows {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Layout of the working memory, in floats.
class WinogradLayout {
 public:
  explicit WinogradLayout(const WinogradShape& shape)
      : tiles_(shape.tiles()),
        rows_per_batch_(std::max<std::size_t>(1, batch_tiles_wanted(shape) / tiles_)),
        slots_((rows_per_batch_ * tiles_ + kSlotsAtOnce - 1) / kSlotsAtOnce * kSlotsAtOnce),
        channels_(std::max(shape.in_channels, shape.out_channels)) {}

  [[nodiscard]] std::size_t tiles() const { return tiles_; }
  [[nodiscard]] std::size_t rows_per_batch() const { return rows_per_batch_; }

  /// Distance of the matrices of two points, [slot][channel] each. Not a power of two: the
  /// transforms access all 36 points at once, which would then all use the same set of the cache.
  [[nodiscard]] std::size_t point_stride(std::size_t channels) const {
    return slots_ * channels + kLine;
  }
  /// One set of 36 matrices.
  [[nodiscard]] std::size_t matrices() const {
    return kWinogradPoints * point_stride(channels_) + kLine;
  }
  /// Pixels per row of a ring of rows, with the border.
  [[nodiscard]] std::size_t ring_row_pixels() const { return tiles_ * kWinogradTile + 2; }
  /// The rings of all vectors of channels of one tensor.
  [[nodiscard]] std::size_t rings() const {
    return kWinogradPatch * ring_row_pixels() * (channels_ + kLine);
  }
  /// Four sets of matrices, two of rings.
  [[nodiscard]] std::size_t total() const { return 4 * matrices() + 2 * rings(); }

 private:
  static constexpr std::size_t kLine = 16;         // floats per cache line, and lanes at most
  static constexpr std::size_t kSlotsAtOnce = 16;  // the matrix kernels work on whole groups

  std::size_t tiles_;
  std::size_t rows_per_batch_;
  std::size_t slots_;
  std::size_t channels_;
};

}  // namespace mayfly::nn::cpu
