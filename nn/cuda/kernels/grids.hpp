#pragma once

// Private to nn/cuda/kernels: how the rows (pixels of images) and granules (8 channels) of a shape
// are distributed over blocks of 256 threads. A thread keeps its granule of channels, and with it
// the channels' factors, and walks down the rows of its block's part. A pure function of the shape.

#include <cstdint>

#include "base/host_device.hpp"
#include "nn/cuda/kernels/kernels.hpp"

namespace mayfly::nn::cuda {

struct RowGrid {
  static constexpr std::uint32_t kThreads = 256;

  std::uint64_t rows = 0;
  std::uint64_t rows_per_part = 0;
  std::uint32_t channels = 0;
  std::uint32_t lanes = 0;        ///< granules side by side in a block: a power of two up to 16
  std::uint32_t row_threads = 0;  ///< threads below each other: kThreads / lanes
  std::uint32_t parts = 0;        ///< of the rows: the grid's x
  std::uint32_t columns = 0;      ///< the grid's y: blocks side by side

  MAYFLY_HOST_DEVICE std::uint32_t first_channel(std::uint32_t column, std::uint32_t thread) const {
    return (column * lanes + thread % lanes) * 8;
  }
  MAYFLY_HOST_DEVICE std::uint64_t first_row(std::uint32_t part, std::uint32_t thread) const {
    return part * rows_per_part + thread / lanes;
  }
  MAYFLY_HOST_DEVICE std::uint64_t end_row(std::uint32_t part) const {
    const std::uint64_t end = (part + 1) * rows_per_part;
    return end < rows ? end : rows;
  }
};

/// Parts of at least `rows_per_thread` rows for each thread, but at most `parts_max` parts.
[[nodiscard]] constexpr RowGrid row_grid(const ActivationShape& shape,
                                         std::uint32_t rows_per_thread, std::uint32_t parts_max) {
  RowGrid grid;
  grid.rows = shape.rows();
  grid.channels = shape.channels;
  const std::uint32_t granules = shape.channels / 8;
  grid.lanes = 1;
  while (grid.lanes < 16 && granules % (2 * grid.lanes) == 0) {
    grid.lanes *= 2;
  }
  grid.columns = granules / grid.lanes;
  grid.row_threads = RowGrid::kThreads / grid.lanes;
  const std::uint64_t rows_wanted = std::uint64_t{grid.row_threads} * rows_per_thread;
  std::uint64_t parts = (grid.rows + rows_wanted - 1) / rows_wanted;
  parts = parts < parts_max ? parts : parts_max;
  grid.rows_per_part = (grid.rows + parts - 1) / parts;
  // After rounding up, the last parts may be left without rows.
  grid.parts =
      static_cast<std::uint32_t>((grid.rows + grid.rows_per_part - 1) / grid.rows_per_part);
  return grid;
}

/// Whether the kernels of batch norm can do a shape.
[[nodiscard]] constexpr bool has_rows(const ActivationShape& shape) {
  return shape.rows() > 0 && shape.channels > 0 && shape.channels % 8 == 0 &&
         shape.channels <= 65536;
}

/// For sums: enough parts to fill a GPU, few enough that adding them up takes no time.
[[nodiscard]] constexpr RowGrid sum_grid(const ActivationShape& shape) {
  return row_grid(shape, 8, 1024);
}

// How the filters are divided among thread blocks.

inline constexpr std::uint32_t kFilterChannels = 128;  ///< input channels of one block
inline constexpr std::uint32_t kFilterKernelMax = 7;
inline constexpr std::uint32_t kFlatElements = 1024;  ///< elements of one block, where flat

/// A 1x1 filter is the same in either layout.
[[nodiscard]] MAYFLY_HOST_DEVICE constexpr bool is_flat(const Filter& filter) {
  return filter.kernel == 1 && filter.packed_channels == filter.in_channels;
}

/// Blocks for the input channels of one output channel.
[[nodiscard]] MAYFLY_HOST_DEVICE constexpr std::uint32_t channel_blocks(const Filter& filter) {
  return (filter.packed_channels + kFilterChannels - 1) / kFilterChannels;
}

[[nodiscard]] constexpr std::uint32_t blocks_of(const Filter& filter) {
  return is_flat(filter)
             ? (filter.out_channels * filter.in_channels + kFlatElements - 1) / kFlatElements
             : filter.out_channels * channel_blocks(filter);
}

}  // namespace mayfly::nn::cuda
