#include "nn/cpu/max_pool.hpp"

#include "base/check.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cpu/max_pool.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nn/cpu/block_vector-inl.hpp"

#ifndef MAYFLY_NN_CPU_MAX_POOL_KERNELS
#define MAYFLY_NN_CPU_MAX_POOL_KERNELS
namespace mayfly::nn::cpu {

/// One instruction set's kernels. `planes` are pairs of (image, channel block).
struct PoolKernels {
  void (*forward)(std::size_t planes, std::size_t width, std::size_t channels, const void* x,
                  const Affine&, void* out, std::uint8_t* places);
  void (*backward)(std::size_t planes, std::size_t width, const void* out_gradient,
                   const std::uint8_t* places, void* x_gradient);
};

}  // namespace mayfly::nn::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace mayfly::nn::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kWindow = 3;
constexpr int kNowhere = 9;

/// Vectors within a block of kBlock channels; one block may take several.
template <std::size_t kBlock>
struct Lanes {
  using Floats = hn::CappedTag<float, kBlock>;
  using Ints = hn::RebindToSigned<Floats>;
  using Bytes = hn::Rebind<std::uint8_t, Floats>;
  using Vec = hn::Vec<Floats>;
  using Indices = hn::Vec<Ints>;

  static HWY_INLINE std::size_t count() { return hn::Lanes(Floats()); }
  template <typename T>
  static HWY_INLINE Vec load(const T* from) {
    return load_value(Floats(), from);
  }
  template <typename T>
  static HWY_INLINE void store(Vec value, T* to) {
    store_value(Floats(), value, to);
  }
  static HWY_INLINE Indices load_places(const std::uint8_t* from) {
    return hn::PromoteTo(Ints(), hn::LoadU(Bytes(), from));
  }
  static HWY_INLINE void store_places(Indices places, std::uint8_t* to) {
    hn::StoreU(hn::DemoteTo(Bytes(), places), Bytes(), to);
  }
};

/// The part of a window that lies inside the image, per axis.
struct Span {
  Span(std::size_t at, std::size_t width)
      : first(at == 0 ? 1 : 0),
        last(static_cast<int>(2 * at + 1 < width ? kWindow : kWindow - 1)) {}
  int first;
  int last;
};

/// The compared value: norm and ReLU of x.
template <std::size_t kBlock>
struct Normalised {
  using L = Lanes<kBlock>;
  HWY_INLINE Normalised(const Affine& affine, std::size_t channel)
      : scale(hn::LoadU(typename L::Floats(), affine.scale + channel)),
        shift(hn::LoadU(typename L::Floats(), affine.shift + channel)) {}
  HWY_INLINE auto operator()(typename L::Vec x) const {
    const auto zero = hn::Zero(typename L::Floats());
    const auto y = hn::MulAdd(x, scale, shift);
    return hn::IfThenZeroElse(hn::Lt(y, zero), y);  // keeps NaN, as the norm's own kernels do
  }
  typename L::Vec scale;
  typename L::Vec shift;
};

/// One window. `x` is the window's upper left corner, which may lie outside the image: only places
/// inside the spans are read.
template <std::size_t kBlock, typename T>
HWY_INLINE void window(const T* x, std::size_t width, Span rows, Span columns,
                       const Normalised<kBlock>& value, T* out, std::uint8_t* places) {
  using L = Lanes<kBlock>;
  const auto row_stride = static_cast<std::ptrdiff_t>(width * kBlock);
  auto best = hn::Set(typename L::Floats(), -HUGE_VALF);
  auto place = hn::Set(typename L::Ints(), rows.first * kWindow + columns.first);
  for (int row = rows.first; row < rows.last; ++row) {
    for (int column = columns.first; column < columns.last; ++column) {
      const auto v = value(L::load(x + row * row_stride + column * std::ptrdiff_t{kBlock}));
      const auto wins = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
      best = hn::IfThenElse(wins, v, best);
      place = hn::IfThenElse(hn::RebindMask(typename L::Ints(), wins),
                             hn::Set(typename L::Ints(), row * kWindow + column), place);
    }
  }
  const auto active = hn::Gt(best, hn::Zero(typename L::Floats()));
  place = hn::IfThenElse(hn::RebindMask(typename L::Ints(), active), place,
                         hn::Set(typename L::Ints(), kNowhere));
  L::store(best, out);
  L::store_places(place, places);
}

template <std::size_t kBlock, typename T>
HWY_INLINE void pool_plane(std::size_t width, const T* x, const Normalised<kBlock>& value, T* out,
                           std::uint8_t* places) {
  const std::size_t to_width = (width + 1) / 2;
  for (std::size_t row = 0; row < to_width; ++row) {
    const Span rows(row, width);
    for (std::size_t column = 0; column < to_width; ++column) {
      // Signed: the corner of the first windows lies before the plane.
      const auto corner =
          (2 * static_cast<std::ptrdiff_t>(row) - 1) * static_cast<std::ptrdiff_t>(width) +
          2 * static_cast<std::ptrdiff_t>(column) - 1;
      const std::size_t to = (row * to_width + column) * kBlock;
      window<kBlock>(x + corner * std::ptrdiff_t{kBlock}, width, rows, Span(column, width), value,
                     out + to, places + to);
    }
  }
}

template <std::size_t kBlock, typename T>
void forward(std::size_t planes, std::size_t width, std::size_t channels, const void* x,
             const Affine& affine, void* out, std::uint8_t* places) {
  const std::size_t to_pixels = ((width + 1) / 2) * ((width + 1) / 2);
  for (std::size_t plane = 0; plane < planes; ++plane) {
    for (std::size_t lane = 0; lane < kBlock; lane += Lanes<kBlock>::count()) {
      const Normalised<kBlock> value(affine, plane * kBlock % channels + lane);
      const std::size_t to = plane * to_pixels * kBlock + lane;
      pool_plane<kBlock>(width, static_cast<const T*>(x) + plane * width * width * kBlock + lane,
                         value, static_cast<T*>(out) + to, places + to);
    }
  }
}

/// The gradients of one plane's windows, and which place each chose.
template <std::size_t kBlock, typename T>
struct Windows {
  using L = Lanes<kBlock>;

  /// The gradient of window (row, column) where it chose `place`, else 0.
  HWY_INLINE typename L::Vec chosen(std::size_t row, std::size_t column, int place) const {
    const std::size_t at = (row * width + column) * kBlock;
    const auto is_chosen = hn::Eq(L::load_places(places + at), hn::Set(typename L::Ints(), place));
    return hn::IfThenElseZero(hn::RebindMask(typename L::Floats(), is_chosen),
                              L::load(gradient + at));
  }

  const T* gradient;
  const std::uint8_t* places;
  std::size_t width;
};

/// The two pixels (2 row, 2 column) and (2 row, 2 column + 1) and the two below them, as far as
/// they exist. Window (r, c) covers the rows 2r - 1 to 2r + 1, so an even pixel lies in the middle
/// of one window and an odd one on the border of two.
template <std::size_t kBlock, typename T>
HWY_INLINE void gather(const Windows<kBlock, T>& from, std::size_t row, std::size_t column,
                       std::size_t width, T* x_gradient) {
  using L = Lanes<kBlock>;
  const bool has_right = 2 * column + 1 < width;
  const bool has_below = 2 * row + 1 < width;
  const bool right_window = column + 1 < from.width;
  const bool below_window = row + 1 < from.width;
  T* const to = x_gradient + (2 * row * width + 2 * column) * kBlock;
  L::store(from.chosen(row, column, 4), to);
  if (has_right) {
    auto sum = from.chosen(row, column, 5);
    if (right_window) {
      sum = hn::Add(sum, from.chosen(row, column + 1, 3));
    }
    L::store(sum, to + kBlock);
  }
  if (has_below) {
    auto sum = from.chosen(row, column, 7);
    if (below_window) {
      sum = hn::Add(sum, from.chosen(row + 1, column, 1));
    }
    L::store(sum, to + width * kBlock);
  }
  if (has_right && has_below) {
    auto sum = from.chosen(row, column, 8);
    if (right_window) {
      sum = hn::Add(sum, from.chosen(row, column + 1, 6));
    }
    if (below_window) {
      sum = hn::Add(sum, from.chosen(row + 1, column, 2));
    }
    if (right_window && below_window) {
      sum = hn::Add(sum, from.chosen(row + 1, column + 1, 0));
    }
    L::store(sum, to + (width + 1) * kBlock);
  }
}

template <std::size_t kBlock, typename T>
void backward(std::size_t planes, std::size_t width, const void* out_gradient,
              const std::uint8_t* places, void* x_gradient) {
  const std::size_t to_width = (width + 1) / 2;
  const std::size_t to_pixels = to_width * to_width;
  for (std::size_t plane = 0; plane < planes; ++plane) {
    for (std::size_t lane = 0; lane < kBlock; lane += Lanes<kBlock>::count()) {
      const std::size_t at = plane * to_pixels * kBlock + lane;
      const Windows<kBlock, T> from{static_cast<const T*>(out_gradient) + at, places + at,
                                    to_width};
      T* const to = static_cast<T*>(x_gradient) + plane * width * width * kBlock + lane;
      for (std::size_t row = 0; row < to_width; ++row) {
        for (std::size_t column = 0; column < to_width; ++column) {
          gather(from, row, column, width, to);
        }
      }
    }
  }
}

template <std::size_t kBlock, typename T>
constexpr PoolKernels kTable{forward<kBlock, T>, backward<kBlock, T>};

}  // namespace

PoolKernels pool_kernels(std::size_t block) {
  return block == 16 ? kTable<16, float> : kTable<8, float>;
}

#if HWY_TARGET == HWY_AVX3
PoolKernels pool_kernels_bf16() {
  return kTable<16, hwy::bfloat16_t>;
}
#endif

}  // namespace mayfly::nn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mayfly::nn::cpu {
namespace {

PoolKernels kernels_of(Isa isa, std::size_t block, Dtype dtype) {
  if (dtype == Dtype::kBf16) {
    return N_AVX3::pool_kernels_bf16();
  }
  return for_isa(isa, N_AVX3::pool_kernels, N_AVX2::pool_kernels,
                 HWY_STATIC_DISPATCH(pool_kernels))(block);
}

}  // namespace

MaxPool::MaxPool(Isa isa, std::size_t images, std::size_t channels, std::size_t width,
                 std::size_t block, Dtype dtype)
    : isa_(isa),
      images_(images),
      channels_(channels),
      from_width_(width),
      block_(block),
      dtype_(dtype) {
  ENSURE(dtype == Dtype::kFp32 || (isa == Isa::kAvx512 && block == 16), "bf16 needs AVX-512");
  ENSURE(block == 8 || block == 16, "blocks have 8 or 16 channels");
  ENSURE(channels % block == 0 && width > 0, "whole blocks of images with pixels");
}

void MaxPool::forward(const void* x, const Affine& affine, void* out, std::uint8_t* places) const {
  kernels_of(isa_, block_, dtype_)
      .forward(images_ * channels_ / block_, from_width_, channels_, x, affine, out, places);
}

void MaxPool::backward(const void* out_gradient, const std::uint8_t* places,
                       void* x_gradient) const {
  kernels_of(isa_, block_, dtype_)
      .backward(images_ * channels_ / block_, from_width_, out_gradient, places, x_gradient);
}

}  // namespace mayfly::nn::cpu
#endif
