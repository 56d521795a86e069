#pragma once

// Private to nn/cpu/winograd.cpp: how a pass is cut into batches of tile rows, and the layout of
// its working memory. The same for every instruction set.

#include <algorithm>
#include <cstddef>

#include "nn/cpu/winograd.hpp"

namespace mayfly::nn::cpu {

inline constexpr std::size_t kWinogradTile = 4;   ///< output pixels of a tile, per side
inline constexpr std::size_t kWinogradPatch = 6;  ///< input pixels that they depend on

/// Tiles per batch: enough to use each transformed weight many times, few enough for the caches.
/// Narrow layers have little to keep; the weights of wide ones come from further away.
[[nodiscard]] inline std::size_t batch_tiles_wanted(const WinogradShape& shape) {
  const std::size_t channels = std::max(shape.in_channels, shape.out_channels);
  return channels >= 128 ? 96 : channels > 16 ? 16 : 48;
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
  /// transforms touch all 36 at once, which would all fall into one set of the cache.
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
  /// A row of tiles of one vector of channels.
  [[nodiscard]] std::size_t strip() const {
    return tiles_ * kWinogradTile * kWinogradTile * kLine + kLine;
  }
  /// Four sets of matrices, two of rings, a strip.
  [[nodiscard]] std::size_t total() const { return 4 * matrices() + 2 * rings() + strip(); }

 private:
  static constexpr std::size_t kLine = 16;         // floats per cache line, and lanes at most
  static constexpr std::size_t kSlotsAtOnce = 16;  // the matrix kernels work on whole groups

  std::size_t tiles_;
  std::size_t rows_per_batch_;
  std::size_t slots_;
  std::size_t channels_;
};

}  // namespace mayfly::nn::cpu
