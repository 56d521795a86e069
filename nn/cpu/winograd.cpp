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
    strip = scratch;
  }

  const WinogradShape& shape;
  WinogradLayout layout;
  std::size_t tiles;
  float* matrices[4];
  float* rings[2];
  float* strip;

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

/// For each vector of channels a ring of the six rows of pixels that a row of tiles depends on. Two
/// of them serve the next row of tiles as well, so that each row of pixels is read once per pass.
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
  /// Makes the six rows for a row of tiles present. Row 0 is the border above the image.
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

/// Transforms a batch's results back and hands them on.
template <typename T, typename To>
HWY_INLINE void write_results(const Pass& pass, const TileRows& rows, std::size_t channels,
                              const float* points, const To& to) {
  const std::size_t stride = pass.layout.point_stride(channels);
  const std::size_t row_stride = pass.tiles * kWinogradTile * lanes();
  for (std::size_t channel = 0; channel < channels; channel += lanes()) {
    const Plane plane = pass.plane(channels, channel);
    for (std::size_t i = 0; i < rows.count; ++i) {
      const float* from = points + i * pass.tiles * channels + channel;
      for (std::size_t column = 0; column < pass.tiles; ++column) {
        transform_output_tile(from + column * channels, stride,
                              pass.strip + column * kWinogradTile * lanes(), row_stride);
      }
      const std::size_t y = (rows.first + i) % pass.tiles * kWinogradTile;
      const Strip strip{pass.strip, row_stride, std::min(kWinogradTile, pass.shape.size - y),
                        pass.shape.size};
      drain<T>(strip, plane, (rows.first + i) / pass.tiles, y, to);
    }
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
  // multiply() has used up its rows of input when it stores them, if one vector or two are a whole
  // row: then the results may take their place, and half as much passes through the caches.
  const bool in_place = in == out && out <= 2 * lanes();
  float* const results = in_place ? patches : pass.matrices[1];
  if (to.wants_moments) {
    clear(to.moments, out);
  }
  PatchRings rings(pass, in, pass.rings[0]);
  for_each_batch(pass, [&](const TileRows& rows) HWY_ATTR {
    rings.for_each_patch<T>(
        rows, from,
        [&](const float* const(&patch)[6], std::size_t slot, std::size_t channel)
            HWY_ATTR { transform_input_patch(patch, patches + slot * in + channel, in_stride); });
    for (std::size_t point = 0; point < kWinogradPoints; ++point) {
      multiply(patches + point * in_stride, pass.slots(rows), in, transformed + point * in * out,
               out, results + point * out_stride);
    }
    write_results<T>(pass, rows, out, results, to);
  });
}

constexpr std::size_t kTaps = 9;  // weights of a kernel

/// The nine taps of a vector of kernels, `stride` floats apart, transformed to 36 points.
HWY_INLINE void transform_kernels(const float* weights, std::size_t stride, bool rotated, float* to,
                                  std::size_t point_stride) {
  const hn::RebindToSigned<Tag> index_tag;
  const auto index =
      hn::Mul(hn::Iota(index_tag, 0), hn::Set(index_tag, static_cast<std::int32_t>(stride)));
  Vec columns[3][6];
  for (std::size_t x = 0; x < 3; ++x) {
    Vec in[3];
    for (std::size_t y = 0; y < 3; ++y) {
      const std::size_t tap = 3 * y + x;
      in[y] = hn::GatherIndex(Tag(), weights + (rotated ? kTaps - 1 - tap : tap), index);
    }
    weight_transform(in, columns[x]);
  }
  for (std::size_t y = 0; y < 6; ++y) {
    const Vec in[3] = {columns[0][y], columns[1][y], columns[2][y]};
    Vec out[6];
    weight_transform(in, out);
    for (std::size_t x = 0; x < 6; ++x) {
      hn::Store(out[x], Tag(), to + (6 * y + x) * point_stride);
    }
  }
}

void transform_weights(const WinogradShape& shape, const float* weights, float* transformed) {
  const std::size_t in = shape.in_channels;
  const std::size_t out = shape.out_channels;
  for (std::size_t c = 0; c < in; ++c) {
    for (std::size_t k = 0; k < out; k += lanes()) {
      transform_kernels(weights + (k * in + c) * kTaps, in * kTaps, false,
                        transformed + in_panels(c, k, in, out), in * out);
    }
  }
}

void transform_weights_for_backward(const WinogradShape& shape, const float* weights,
                                    float* transformed) {
  const std::size_t in = shape.in_channels;
  const std::size_t out = shape.out_channels;
  for (std::size_t k = 0; k < out; ++k) {
    for (std::size_t c = 0; c < in; c += lanes()) {
      transform_kernels(weights + (k * in + c) * kTaps, kTaps, true,
                        transformed + in_panels(k, c, out, in), in * out);
    }
  }
}

/// The sums at the 36 points, matrices [out channel][in channel] in panels, to the flat OIHW
/// gradient of the kernels of output channel `k` and a vector of input channels from `c`.
HWY_INLINE void finish_kernels(const WinogradShape& shape, const float* sums, std::size_t k,
                               std::size_t c, float* gradient) {
  const hn::RebindToSigned<Tag> index_tag;
  const auto index =
      hn::Mul(hn::Iota(index_tag, 0), hn::Set(index_tag, static_cast<std::int32_t>(kTaps)));
  const std::size_t kernels = shape.in_channels * shape.out_channels;
  const float* from = sums + in_panels(k, c, shape.out_channels, shape.in_channels);
  float* const to = gradient + (k * shape.in_channels + c) * kTaps;
  Vec columns[6][3];
  for (std::size_t x = 0; x < 6; ++x) {
    Vec in[6];
    for (std::size_t y = 0; y < 6; ++y) {
      in[y] = hn::Load(Tag(), from + (6 * y + x) * kernels);
    }
    weight_gradient_transform(in, columns[x]);
  }
  for (std::size_t y = 0; y < 3; ++y) {
    const Vec in[6] = {columns[0][y], columns[1][y], columns[2][y],
                       columns[3][y], columns[4][y], columns[5][y]};
    Vec out[3];
    weight_gradient_transform(in, out);
    for (std::size_t x = 0; x < 3; ++x) {
      hn::ScatterIndex(out[x], Tag(), to + 3 * y + x, index);
    }
  }
}

HWY_INLINE void finish_weight_gradient(const WinogradShape& shape, const float* sums,
                                       float* gradient) {
  for (std::size_t k = 0; k < shape.out_channels; ++k) {
    for (std::size_t c = 0; c < shape.in_channels; c += lanes()) {
      finish_kernels(shape, sums, k, c, gradient);
    }
  }
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
  auto& [patches, gradient_patches, gradient_tiles, results] = pass.matrices;
  std::fill_n(weight_sums, shape.weight_floats(), 0.0F);
  if (to.mask != ReluMask::kNone) {
    clear(to.sums, in);
  }
  PatchRings rings(pass, in, pass.rings[0]);
  PatchRings gradient_rings(pass, out, pass.rings[1]);
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
    for (std::size_t point = 0; point < kWinogradPoints; ++point) {
      multiply(gradient_patches + point * out_stride, pass.slots(rows), out,
               transformed + point * in * out, in, results + point * in_stride);
      accumulate_outer(gradient_tiles + point * out_stride, out, patches + point * in_stride, in,
                       pass.slots(rows), weight_sums + point * in * out);
    }
    write_results<T>(pass, rows, in, results, to);
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
