// Sums of gradients, the option-A shortcut and max pooling. One thread for each granule of eight
// channels of the output.

#include "nn/cuda/kernels/launch.hpp"
#include "nn/cuda/kernels/parts.hpp"

namespace mayfly::nn::cuda::MAYFLY_SIDE {
namespace {

/// A granule of an image.
struct Spot {
  std::uint32_t image;
  std::uint32_t row;
  std::uint32_t column;
  std::uint32_t channel;
};

/// The i-th granule of a shape.
MAYFLY_HOST_DEVICE inline Spot spot_of(const ActivationShape& shape, std::uint32_t i) {
  const std::uint32_t granules = shape.channels / kGranule;
  const std::uint32_t pixel = i / granules;
  const std::uint32_t row = pixel / shape.width;
  return {row / shape.width, row % shape.width, pixel % shape.width, i % granules * kGranule};
}

MAYFLY_HOST_DEVICE inline std::uint64_t offset_of(const ActivationShape& shape, const Spot& spot) {
  const std::uint64_t row = std::uint64_t{spot.image} * shape.width + spot.row;
  return (row * shape.width + spot.column) * shape.channels + spot.channel;
}

template <typename T>
struct Add {
  const T* a;
  const T* b;
  T* out;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const std::uint64_t at = std::uint64_t{kGranule} * i;
    Granule sum = load_granule(a + at);
    const Granule other = load_granule(b + at);
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      sum.value[k] += other.value[k];
    }
    store_granule(sum, out + at);
  }
};

template <typename T>
struct Shortcut {
  ActivationShape from;
  ActivationShape to;
  const T* x;
  T* out;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const Spot spot = spot_of(to, i);
    const std::uint32_t before = from.channels / 2;
    Granule value{};
    if (spot.channel >= before && spot.channel < before + from.channels) {
      const Spot source{spot.image, 2 * spot.row, 2 * spot.column, spot.channel - before};
      value = load_granule(x + offset_of(from, source));
    }
    store_granule(value, out + std::uint64_t{kGranule} * i);
  }
};

template <typename T>
struct ShortcutGradient {
  ActivationShape from;
  ActivationShape to;
  const T* out_gradient;
  T* x_gradient;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const Spot spot = spot_of(from, i);
    Granule value{};
    if (spot.row % 2 == 0 && spot.column % 2 == 0) {
      const Spot source{spot.image, spot.row / 2, spot.column / 2,
                        spot.channel + from.channels / 2};
      value = load_granule(out_gradient + offset_of(to, source));
    }
    store_granule(value, x_gradient + std::uint64_t{kGranule} * i);
  }
};

constexpr std::uint32_t kWindow = 3;
constexpr std::uint32_t kNowhere = 9;

/// The places of eight neighbouring channels.
struct alignas(8) Places {
  std::uint8_t place[kGranule];
};

MAYFLY_HOST_DEVICE inline Places load_places(const std::uint8_t* from) {
  return *reinterpret_cast<const Places*>(from);
}
MAYFLY_HOST_DEVICE inline void store_places(const Places& places, std::uint8_t* to) {
  *reinterpret_cast<Places*>(to) = places;
}

template <typename T>
struct MaxPool {
  ActivationShape from;
  ActivationShape to;
  const T* x;
  const float* scale;
  const float* shift;
  T* out;
  std::uint8_t* places;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const Spot spot = spot_of(to, i);
    Granule best;
    std::uint32_t where[kGranule];
    const std::uint32_t first = (spot.row == 0 ? kWindow : 0) + (spot.column == 0 ? 1 : 0);
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      best.value[k] = float_of(0xff800000U);  // minus infinity
      where[k] = first;
    }
    for (std::uint32_t place = 0; place < kWindow * kWindow; ++place) {
      // Rows and columns of the window begin at 2 * row - 1; before the image they wrap around.
      const std::uint32_t row = 2 * spot.row + place / kWindow - 1;
      const std::uint32_t column = 2 * spot.column + place % kWindow - 1;
      if (row < from.width && column < from.width) {
        take(load({spot.image, row, column, spot.channel}), place, best, where);
      }
    }
    store(best, where, i);
  }

  /// Norm and ReLU of x.
  MAYFLY_HOST_DEVICE Granule load(const Spot& spot) const {
    Granule value = load_granule(x + offset_of(from, spot));
    const Granule factor = load_granule(scale + spot.channel);
    const Granule constant = load_granule(shift + spot.channel);
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      value.value[k] = relu(fused(value.value[k], factor.value[k], constant.value[k]));
    }
    return value;
  }

  MAYFLY_HOST_DEVICE static void take(const Granule& value, std::uint32_t place, Granule& best,
                                      std::uint32_t (&where)[kGranule]) {
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      const float v = value.value[k];
      const bool wins = v > best.value[k] || is_nan(v);
      best.value[k] = wins ? v : best.value[k];
      where[k] = wins ? place : where[k];
    }
  }

  MAYFLY_HOST_DEVICE void store(const Granule& best, const std::uint32_t (&where)[kGranule],
                                std::uint32_t i) const {
    Places chosen;
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      chosen.place[k] = static_cast<std::uint8_t>(best.value[k] > 0.0F ? where[k] : kNowhere);
    }
    store_granule(best, out + std::uint64_t{kGranule} * i);
    store_places(chosen, places + std::uint64_t{kGranule} * i);
  }
};

/// Window (r, c) covers the rows 2r - 1 to 2r + 1, so an even pixel lies in the middle of one
/// window and an odd one on the border of two, if there is a second.
template <typename T>
struct MaxPoolGradient {
  ActivationShape from;
  ActivationShape to;
  const T* out_gradient;
  const std::uint8_t* places;
  T* x_gradient;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const Spot spot = spot_of(from, i);
    const std::uint32_t row = spot.row / 2;
    const std::uint32_t column = spot.column / 2;
    const bool below = spot.row % 2 == 1 && row + 1 < to.width;
    const bool right = spot.column % 2 == 1 && column + 1 < to.width;
    // The pixel's place in window (row, column).
    const std::uint32_t place = (1 + spot.row % 2) * kWindow + 1 + spot.column % 2;
    Granule sum = chosen({spot.image, row, column, spot.channel}, place);
    if (right) {
      add(sum, chosen({spot.image, row, column + 1, spot.channel}, place - 2));
    }
    if (below) {
      add(sum, chosen({spot.image, row + 1, column, spot.channel}, place - 2 * kWindow));
    }
    if (below && right) {
      add(sum, chosen({spot.image, row + 1, column + 1, spot.channel}, 0));
    }
    store_granule(sum, x_gradient + std::uint64_t{kGranule} * i);
  }

  /// A window's gradient in the channels where it chose `place`, else 0.
  MAYFLY_HOST_DEVICE Granule chosen(const Spot& window, std::uint32_t place) const {
    const std::uint64_t at = offset_of(to, window);
    Granule gradient = load_granule(out_gradient + at);
    const Places of_window = load_places(places + at);
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      gradient.value[k] = of_window.place[k] == place ? gradient.value[k] : 0.0F;
    }
    return gradient;
  }
  MAYFLY_HOST_DEVICE static void add(Granule& sum, const Granule& other) {
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      sum.value[k] += other.value[k];
    }
  }
};

template <typename T>
const T* as(const void* values) {
  return static_cast<const T*>(values);
}
template <typename T>
T* as(void* values) {
  return static_cast<T*>(values);
}

int add(std::uint64_t elements, Dtype dtype, const void* a, const void* b, void* out,
        Stream stream) {
  if (elements % kGranule != 0) {
    return kInvalidArguments;
  }
  const std::uint64_t count = elements / kGranule;
  return with_type_of(dtype, [&](auto value) {
    using T = decltype(value);
    return launch_each(Add<T>{as<T>(a), as<T>(b), as<T>(out)}, count, stream);
  });
}

ActivationShape halved(const ActivationShape& from, std::uint32_t channels) {
  return {from.images, (from.width + 1) / 2, channels};
}

/// Channels in whole granules, and pixels whose numbers fit 32 bits.
bool fits(const ActivationShape& shape, std::uint32_t channels_unit) {
  return shape.width > 0 && shape.width <= 32768 && shape.channels > 0 && shape.channels <= 65536 &&
         shape.channels % channels_unit == 0;
}

int shortcut(const ActivationShape& from, Dtype dtype, const void* x, void* out, Stream stream) {
  if (!fits(from, 2 * kGranule)) {
    return kInvalidArguments;
  }
  const ActivationShape to = halved(from, 2 * from.channels);
  const std::uint64_t count = to.elements() / kGranule;
  return with_type_of(dtype, [&](auto value) {
    using T = decltype(value);
    return launch_each(Shortcut<T>{from, to, as<T>(x), as<T>(out)}, count, stream);
  });
}

template <typename T>
int shortcut_gradient_as(const ActivationShape& from, const void* out_gradient, void* x_gradient,
                         Stream stream) {
  return launch_each(ShortcutGradient<T>{from, halved(from, 2 * from.channels), as<T>(out_gradient),
                                         as<T>(x_gradient)},
                     from.elements() / kGranule, stream);
}

int shortcut_gradient(const ActivationShape& from, Dtype dtype, const void* out_gradient,
                      void* x_gradient, Stream stream) {
  if (!fits(from, 2 * kGranule)) {
    return kInvalidArguments;
  }
  return with_type_of(dtype, [&](auto value) {
    return shortcut_gradient_as<decltype(value)>(from, out_gradient, x_gradient, stream);
  });
}

template <typename T>
int max_pool_as(const ActivationShape& from, const void* x, const float* scale, const float* shift,
                void* out, std::uint8_t* places, Stream stream) {
  const ActivationShape to = halved(from, from.channels);
  const std::uint64_t count = to.elements() / kGranule;
  return launch_each(MaxPool<T>{from, to, as<T>(x), scale, shift, as<T>(out), places}, count,
                     stream);
}

int max_pool(const ActivationShape& from, Dtype dtype, const void* x, const float* scale,
             const float* shift, void* out, std::uint8_t* places, Stream stream) {
  if (!fits(from, kGranule)) {
    return kInvalidArguments;
  }
  return with_type_of(dtype, [&](auto value) {
    return max_pool_as<decltype(value)>(from, x, scale, shift, out, places, stream);
  });
}

template <typename T>
int max_pool_gradient_as(const ActivationShape& from, const void* out_gradient,
                         const std::uint8_t* places, void* x_gradient, Stream stream) {
  return launch_each(MaxPoolGradient<T>{from, halved(from, from.channels), as<T>(out_gradient),
                                        places, as<T>(x_gradient)},
                     from.elements() / kGranule, stream);
}

int max_pool_gradient(const ActivationShape& from, Dtype dtype, const void* out_gradient,
                      const std::uint8_t* places, void* x_gradient, Stream stream) {
  if (!fits(from, kGranule)) {
    return kInvalidArguments;
  }
  return with_type_of(dtype, [&](auto value) {
    return max_pool_gradient_as<decltype(value)>(from, out_gradient, places, x_gradient, stream);
  });
}

template <typename T>
int load_types() {
  return load_each<Add<T>, Shortcut<T>, ShortcutGradient<T>, MaxPool<T>, MaxPoolGradient<T>>();
}

}  // namespace

void add_pool_kernels(Kernels& table) {
  table.add = add;
  table.shortcut = shortcut;
  table.shortcut_gradient = shortcut_gradient;
  table.max_pool = max_pool;
  table.max_pool_gradient = max_pool_gradient;
}

int load_pool_kernels() {
  return first_failure(load_types<float>(), load_types<Bf16>(), load_types<Fp16>());
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
