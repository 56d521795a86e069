#include "nn/cpu/winograd.hpp"

#include <algorithm>

#include "base/check.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/winograd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/cpu/winograd_gemm-inl.hpp"
#include "nn/cpu/winograd_rows-inl.hpp"
#include "nn/cpu/winograd_transforms-inl.hpp"
#include "nn/cpu/winograd_weights-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

/// One pass's geometry and working memory.
struct Pass {
  Pass(const WinogradShape& pass_shape, float* scratch)
      : shape(pass_shape), layout(pass_shape), tiles(pass_shape.tiles()) {
    for (float*& each : matrices) {
      each = scratch;
      scratch += layout.matrices();
    }
    for (float*& each : rings) {
      each = scratch;
      scratch += layout.rings();
    }
  }

  const WinogradShape& shape;
  WinogradLayout layout;
  std::size_t tiles;
  float* matrices[4];
  float* rings[2];

  /// multiply() has read its rows of input completely when it stores its results, if one or two
  /// vectors are a whole row. Then the results may overwrite them, and less data passes through the
  /// caches.
  [[nodiscard]] bool works_in_place() const {
    return shape.in_channels == shape.out_channels && shape.out_channels <= 2 * lanes();
  }
  [[nodiscard]] std::size_t slots(const TileRows& rows) const { return rows.count * tiles; }
  [[nodiscard]] Plane plane(std::size_t channels, std::size_t channel) const {
    return {channels / kBlock, shape.size, channel};
  }
};

/// Calls visit(rows) for each batch.
template <typename Visit>
HWY_INLINE void for_each_batch(const Pass& pass, const Visit& visit) {
  const std::size_t all = pass.shape.images * pass.tiles;
  for (std::size_t first = 0; first < all; first += pass.layout.rows_per_batch()) {
    visit(TileRows{first, std::min(pass.layout.rows_per_batch(), all - first)});
  }
}

/// For each vector of channels a ring of the six rows of pixels on which a row of tiles depends.
/// The next row of tiles uses two of them as well, so each row of pixels is read once per pass.
class PatchRings {
 public:
  PatchRings(const Pass& pass, std::size_t channels, float* memory)
      : pass_(pass),
        channels_(channels),
        memory_(memory),
        row_floats_(pass.layout.ring_row_pixels() * lanes()) {
    for (std::size_t row = 0; row < kWinogradPatch * (channels / lanes()); ++row) {
      clear_border(memory_ + row * row_floats_);
    }
  }

  /// Calls transform(patch rows, slot, channel) for each tile of a batch and each vector of
  /// channels. Batches come in order.
  template <typename T, typename From, typename Transform>
  HWY_INLINE void for_each_patch(const TileRows& rows, const From& from,
                                 const Transform& transform) {
    for (std::size_t channel = 0; channel < channels_; channel += lanes()) {
      const Plane plane = pass_.plane(channels_, channel);
      float* const ring = memory_ + channel * (row_floats_ / lanes()) * kWinogradPatch;
      for (std::size_t i = 0; i < rows.count; ++i) {
        const std::size_t tile_row = (rows.first + i) % pass_.tiles;
        advance<T>(ring, from, plane, (rows.first + i) / pass_.tiles, tile_row);
        for (std::size_t column = 0; column < pass_.tiles; ++column) {
          const float* patch[kWinogradPatch];
          for (std::size_t y = 0; y < kWinogradPatch; ++y) {
            patch[y] = row(ring, kWinogradTile * tile_row + y) + column * kWinogradTile * lanes();
          }
          transform(patch, i * pass_.tiles + column, channel);
        }
      }
    }
  }

 private:
  [[nodiscard]] HWY_INLINE float* row(float* ring, std::size_t y) const {
    return ring + y % kWinogradPatch * row_floats_;
  }
  void clear_border(float* row) const {
    hn::Store(hn::Zero(Tag()), Tag(), row);
    for (std::size_t x = pass_.shape.size + 1; x < pass_.layout.ring_row_pixels(); ++x) {
      hn::Store(hn::Zero(Tag()), Tag(), row + x * lanes());
    }
  }
  /// Loads the six rows for a row of tiles. Row 0 is the border above the image.
  template <typename T, typename From>
  HWY_INLINE void advance(float* ring, const From& from, const Plane& plane, std::size_t image,
                          std::size_t tile_row) {
    const std::size_t begin = kWinogradTile * tile_row;
    const std::size_t kept = tile_row > 0 ? kWinogradPatch - kWinogradTile : 0;
    for (std::size_t y = begin + kept; y < begin + kWinogradPatch; ++y) {
      float* const to = row(ring, y) + lanes();
      if (y == 0 || y > plane.size) {
        std::fill_n(to, plane.size * lanes(), 0.0F);
      } else {
        fill_row<T>(from, plane, image, y - 1, to);
      }
    }
  }

  const Pass& pass_;
  std::size_t channels_;
  float* memory_;
  std::size_t row_floats_;
};

/// Prefetches the rows of pixels that the next batch reads and overwrites, a part of them with each
/// product of matrices, during which the memory is idle. For narrow layers, whose products are too
/// short for the processor to prefetch by itself; tensors of wide layers would displace the
/// weights.
template <typename T>
class RowsAhead {
 public:
  explicit RowsAhead(const Pass& pass)
      : pass_(pass),
        row_bytes_(pass.shape.size * kBlock * sizeof(T)),
        is_narrow_(std::max(pass.shape.in_channels, pass.shape.out_channels) < kWideChannels) {}

  /// Adds a tensor; null for one that the pass does not use. It may have been added before.
  void add(const void* tensor, std::size_t channels) {
    const auto* const data = static_cast<const char*>(tensor);
    const auto is_known = [&](const Tensor& other) { return other.data == data; };
    if (!is_narrow_ || std::any_of(tensors_, tensors_ + count_, is_known) || data == nullptr) {
      return;
    }
    tensors_[count_++] = {data, channels / kBlock};
    blocks_ += channels / kBlock;
  }
  /// `rows` is the present batch; the rows after it are prefetched by that many calls of advance().
  void begin(const TileRows& rows, std::size_t parts) {
    const std::size_t all = pass_.shape.images * pass_.tiles;
    first_ = rows.first + rows.count;
    rows_ = std::min(pass_.layout.rows_per_batch(), all - first_);
    const std::size_t bytes = blocks_ * rows_ * kWinogradTile * row_bytes_;
    lines_per_part_ = (bytes / kLine + parts - 1) / parts;
    tensor_ = block_ = row_ = 0;
    piece_ = blocks_ * rows_ > 0 ? piece() : Piece{};
  }
  HWY_INLINE void advance() {
    for (std::size_t left = lines_per_part_; left > 0 && piece_.next < piece_.end;) {
      for (; left > 0 && piece_.next < piece_.end; --left, piece_.next += kLine) {
        __builtin_prefetch(piece_.next, 0, kIntoSecondLevel);
      }
      if (piece_.next >= piece_.end) {
        go_on();
      }
    }
  }

 private:
  static constexpr std::size_t kWideChannels = 128;
  static constexpr std::size_t kTensorsMax = 7;
  static constexpr std::size_t kLine = 64;
  static constexpr int kIntoSecondLevel = 2;

  struct Tensor {
    const char* data;
    std::size_t blocks;
  };
  /// Rows of pixels of one row of tiles in one block of channels.
  struct Piece {
    const char* next = nullptr;
    const char* end = nullptr;
  };

  [[nodiscard]] Piece piece() const {
    const std::size_t size = pass_.shape.size;
    const std::size_t image = (first_ + row_) / pass_.tiles;
    const std::size_t y = (first_ + row_) % pass_.tiles * kWinogradTile;
    const Tensor& tensor = tensors_[tensor_];
    const char* begin = tensor.data + ((image * tensor.blocks + block_) * size + y) * row_bytes_;
    return {begin, begin + std::min(kWinogradTile, size - y) * row_bytes_};
  }
  void go_on() {
    if (++row_ == rows_) {
      row_ = 0;
      if (++block_ == tensors_[tensor_].blocks) {
        block_ = 0;
        ++tensor_;
      }
    }
    piece_ = tensor_ < count_ ? piece() : Piece{};
  }

  const Pass& pass_;
  std::size_t row_bytes_;
  bool is_narrow_;
  Tensor tensors_[kTensorsMax] = {};
  std::size_t count_ = 0;
  std::size_t blocks_ = 0;  // of all tensors
  std::size_t first_ = 0;   // rows of tiles
  std::size_t rows_ = 0;
  std::size_t lines_per_part_ = 0;
  std::size_t tensor_ = 0;
  std::size_t block_ = 0;
  std::size_t row_ = 0;
  Piece piece_;
};

/// Passes on the pixels of one tile that are inside the image.
template <typename Sink>
HWY_INLINE void drain_tile(const Vec (&tile)[4][4], std::size_t rows, std::size_t columns,
                           std::size_t at, std::size_t row_stride, Sink& sink) {
  if (rows == kWinogradTile && columns == kWinogradTile) {
#pragma GCC unroll 4
    for (std::size_t y = 0; y < kWinogradTile; ++y) {
#pragma GCC unroll 4
      for (std::size_t x = 0; x < kWinogradTile; ++x) {
        sink.pixel(at + y * row_stride + x * kBlock, tile[y][x], x % 2);
      }
    }
    return;
  }
  HWY_ALIGN float pixels[kWinogradTile * kWinogradTile * kBlock];
#pragma GCC unroll 4
  for (std::size_t y = 0; y < kWinogradTile; ++y) {
#pragma GCC unroll 4
    for (std::size_t x = 0; x < kWinogradTile; ++x) {
      hn::Store(tile[y][x], Tag(), pixels + (y * kWinogradTile + x) * lanes());
    }
  }
  for (std::size_t y = 0; y < rows; ++y) {
    for (std::size_t x = 0; x < columns; ++x) {
      const Vec value = hn::Load(Tag(), pixels + (y * kWinogradTile + x) * lanes());
      sink.pixel(at + y * row_stride + x * kBlock, value, 0);
    }
  }
}

/// Transforms a batch's results back and passes them on.
template <typename Sink, typename To>
HWY_INLINE void write_results(const Pass& pass, const TileRows& rows, std::size_t channels,
                              const float* points, const To& to) {
  const std::size_t stride = pass.layout.point_stride(channels);
  const std::size_t size = pass.shape.size;
  for (std::size_t channel = 0; channel < channels; channel += lanes()) {
    const Plane plane = pass.plane(channels, channel);
    for (std::size_t i = 0; i < rows.count; ++i) {
      const float* from = points + i * pass.tiles * channels + channel;
      const std::size_t y = (rows.first + i) % pass.tiles * kWinogradTile;
      const std::size_t height = std::min(kWinogradTile, size - y);
      Sink sink(to, plane, (rows.first + i) / pass.tiles, y);
      for (std::size_t column = 0; column < pass.tiles; ++column) {
        Vec tile[4][4];
        transform_output_tile(from + column * channels, stride, tile);
        if (column == 0) {
          // If possible not a value of the border, to which fewer weights contribute.
          sink.begin(height > 1 && size > 1 ? tile[1][1] : tile[0][0]);
        }
        const std::size_t x = column * kWinogradTile;
        drain_tile(tile, height, std::min(kWinogradTile, size - x), x * kBlock, size * kBlock,
                   sink);
      }
      sink.finish(height * size, to, channel);
    }
  }
}

template <typename T, ReluMask kMask>
HWY_INLINE void write_masked(const Pass& pass, const TileRows& rows, std::size_t channels,
                             const float* points, const GradientWrite& to) {
  if (to.addend != nullptr) {
    write_results<GradientSink<T, kMask, true>>(pass, rows, channels, points, to);
  } else {
    write_results<GradientSink<T, kMask, false>>(pass, rows, channels, points, to);
  }
}

template <typename T>
HWY_INLINE void write_gradient(const Pass& pass, const TileRows& rows, std::size_t channels,
                               const float* points, const GradientWrite& to) {
  switch (to.mask) {
    case ReluMask::kNone: write_masked<T, ReluMask::kNone>(pass, rows, channels, points, to); break;
    case ReluMask::kAffine:
      write_masked<T, ReluMask::kAffine>(pass, rows, channels, points, to);
      break;
    case ReluMask::kPositive:
      write_masked<T, ReluMask::kPositive>(pass, rows, channels, points, to);
      break;
  }
}

void clear(const ChannelSums& sums, std::size_t channels) {
  std::fill_n(sums.first, channels, 0.0);
  std::fill_n(sums.second, channels, 0.0);
}

template <typename T>
void forward(const WinogradShape& shape, const ActivationRead& from, const float* transformed,
             const ActivationWrite& to, float* scratch) {
  const Pass pass(shape, scratch);
  const std::size_t in = shape.in_channels;
  const std::size_t out = shape.out_channels;
  const std::size_t in_stride = pass.layout.point_stride(in);
  const std::size_t out_stride = pass.layout.point_stride(out);
  float* const patches = pass.matrices[0];
  float* const results = pass.works_in_place() ? patches : pass.matrices[1];
  if (to.wants_moments) {
    clear(to.moments, out);
  }
  PatchRings rings(pass, in, pass.rings[0]);
  RowsAhead<T> ahead(pass);
  ahead.add(from.x, in);
  ahead.add(to.out, out);
  for_each_batch(pass, [&](const TileRows& rows) HWY_ATTR {
    rings.for_each_patch<T>(
        rows, from,
        [&](const float* const(&patch)[6], std::size_t slot, std::size_t channel)
            HWY_ATTR { transform_input_patch(patch, patches + slot * in + channel, in_stride); });
    ahead.begin(rows, kWinogradPoints);
    for (std::size_t point = 0; point < kWinogradPoints; ++point) {
      ahead.advance();
      multiply(patches + point * in_stride, pass.slots(rows), in,
               transformed + point * shape.weight_stride(), out, results + point * out_stride);
    }
    write_results<ActivationSink<T>>(pass, rows, out, results, to);
  });
}

template <typename T>
void backward(const WinogradShape& shape, const ActivationRead& from, const GradientRead& gradient,
              const float* transformed, const GradientWrite& to, float* weight_sums,
              float* weight_gradient, float* scratch) {
  const Pass pass(shape, scratch);
  const std::size_t in = shape.in_channels;
  const std::size_t out = shape.out_channels;
  const std::size_t in_stride = pass.layout.point_stride(in);
  const std::size_t out_stride = pass.layout.point_stride(out);
  auto& [patches, gradient_patches, gradient_tiles, others] = pass.matrices;
  float* const results = pass.works_in_place() ? gradient_patches : others;
  std::fill_n(weight_sums, shape.weight_floats(), 0.0F);
  if (to.mask != ReluMask::kNone) {
    clear(to.sums, in);
  }
  PatchRings rings(pass, in, pass.rings[0]);
  PatchRings gradient_rings(pass, out, pass.rings[1]);
  RowsAhead<T> ahead(pass);
  ahead.add(gradient.gradient, out);
  ahead.add(gradient.through_norm ? gradient.x : nullptr, out);
  ahead.add(from.x, in);
  ahead.add(to.out, in);
  ahead.add(to.addend, in);
  ahead.add(to.mask == ReluMask::kPositive ? to.relu_output : nullptr, in);
  ahead.add(to.mask == ReluMask::kNone ? nullptr : to.x, in);
  for_each_batch(pass, [&](const TileRows& rows) HWY_ATTR {
    gradient_rings.for_each_patch<T>(
        rows, gradient,
        [&](const float* const(&patch)[6], std::size_t slot, std::size_t channel) HWY_ATTR {
          transform_input_patch(patch, gradient_patches + slot * out + channel, out_stride);
          transform_gradient_tile(patch, gradient_tiles + slot * out + channel, out_stride);
        });
    rings.for_each_patch<T>(
        rows, from,
        [&](const float* const(&patch)[6], std::size_t slot, std::size_t channel)
            HWY_ATTR { transform_input_patch(patch, patches + slot * in + channel, in_stride); });
    ahead.begin(rows, 2 * kWinogradPoints);
    for (std::size_t point = 0; point < kWinogradPoints; ++point) {
      ahead.advance();
      multiply(gradient_patches + point * out_stride, pass.slots(rows), out,
               transformed + point * shape.weight_stride(), in, results + point * in_stride);
      ahead.advance();
      accumulate_outer(gradient_tiles + point * out_stride, out, patches + point * in_stride, in,
                       pass.slots(rows), weight_sums + point * shape.weight_stride());
    }
    write_gradient<T>(pass, rows, in, results, to);
  });
  finish_weight_gradient(shape, weight_sums, weight_gradient);
}

template <typename T>
constexpr WinogradKernels kTable{.transform_weights = transform_weights,
                                 .transform_weights_for_backward = transform_weights_for_backward,
                                 .forward = forward<T>,
                                 .backward = backward<T>};

}  // namespace

const WinogradKernels& winograd_kernels() {
  return kTable<float>;
}

#if HWY_TARGET == HWY_AVX3
const WinogradKernels& winograd_kernels_bf16() {
  return kTable<hwy::bfloat16_t>;
}
#endif

}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::nn::cpu {

std::size_t WinogradShape::scratch_floats() const {
  return WinogradLayout(*this).total();
}

const WinogradKernels& winograd_for(Isa isa, Dtype dtype) {
  if (dtype == Dtype::kBf16) {
    ENSURE(isa == Isa::kAvx512, "bf16 needs AVX-512");
    return N_AVX3::winograd_kernels_bf16();
  }
  return for_isa(isa, N_AVX3::winograd_kernels, N_AVX2::winograd_kernels,
                 HWY_STATIC_DISPATCH(winograd_kernels))();
}

}  // namespace mayfly::nn::cpu
#endif
