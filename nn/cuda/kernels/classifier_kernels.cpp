// Average pooling, the linear layer and its gradients: the arithmetic of nn/cpu/classifier, in
// double and in its order, so that the same activations give the same logits. The loss is in
// loss_kernels.cpp.

#include "nn/cuda/kernels/launch.hpp"
#include "nn/cuda/kernels/parts.hpp"

namespace mayfly::nn::cuda::MAYFLY_SIDE {
namespace {

/// One feature of one image: the mean of its pixels.
template <typename T>
struct AveragePool {
  std::uint32_t area;
  std::uint32_t channels;
  const T* x;
  double* features;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const std::uint32_t image = i / channels;
    const T* from = x + std::uint64_t{image} * area * channels + i % channels;
    double sum = 0;
    for (std::uint32_t pixel = 0; pixel < area; ++pixel, from += channels) {
      sum += static_cast<double>(widen(*from));
    }
    features[i] = sum / static_cast<double>(area);
  }
};

/// A matrix in memory, or its transpose.
template <typename T>
struct Matrix {
  T* at;
  std::uint64_t row_stride;
  std::uint64_t column_stride;

  MAYFLY_HOST_DEVICE T& operator()(std::uint32_t row, std::uint32_t column) const {
    return at[row * row_stride + column * column_stride];
  }
};

/// out(i, j) = start[j] + sum over k of a(i, k) / divisor * b(k, j), one k after the other, nothing
/// fused. Tiles of 64 x 64 outputs, 4 x 4 of them for each thread.
template <typename B, typename Out>
struct Multiply {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kTile = 64;
  static constexpr std::uint32_t kDepth = 16;
  static constexpr std::uint32_t kSide = 16;  ///< threads per row and column of a tile
  static constexpr std::uint32_t kEach = 4;

  struct Shared {
    double a[kDepth][kTile + 1];  // one more, so that a column's elements are in different banks
    double b[kDepth][kTile + 1];
  };
  struct State {
    double sum[kEach][kEach];
  };

  std::uint32_t rows;
  std::uint32_t columns;
  std::uint32_t depth;
  double divisor;
  Matrix<const double> a;
  Matrix<const B> b;
  const float* start;  ///< null: zero
  Matrix<Out> out;

  /// Loads and multiplies alternately, then stores.
  MAYFLY_HOST_DEVICE int phases() const {
    return 2 * static_cast<int>((depth + kDepth - 1) / kDepth) + 1;
  }

  MAYFLY_HOST_DEVICE void phase(int number, const Place& at, State& state, Shared& shared) const {
    const std::uint32_t first_row = at.block * kTile;
    const std::uint32_t first_column = at.column * kTile;
    const std::uint32_t first_depth = static_cast<std::uint32_t>(number / 2) * kDepth;
    if (number == 0) {
      begin(at, first_column, state);
    }
    if (number == phases() - 1) {
      store(at, first_row, first_column, state);
    } else if (number % 2 == 0) {
      load(at, first_row, first_column, first_depth, shared);
    } else {
      const std::uint32_t left = depth - first_depth;
      multiply(at, left < kDepth ? left : kDepth, state, shared);
    }
  }

  MAYFLY_HOST_DEVICE void begin(const Place& at, std::uint32_t first_column, State& state) const {
    for (std::uint32_t j = 0; j < kEach; ++j) {
      const std::uint32_t column = first_column + at.thread % kSide + j * kSide;
      const double value =
          start != nullptr && column < columns ? static_cast<double>(start[column]) : 0.0;
      for (std::uint32_t i = 0; i < kEach; ++i) {
        state.sum[i][j] = value;
      }
    }
  }

  MAYFLY_HOST_DEVICE void load(const Place& at, std::uint32_t first_row, std::uint32_t first_column,
                               std::uint32_t first_depth, Shared& shared) const {
    for (std::uint32_t e = at.thread; e < kTile * kDepth; e += kThreads) {
      // Neighbouring threads read neighbouring memory, whatever the layout of the matrix.
      const bool a_along = a.column_stride == 1;
      const std::uint32_t a_row = a_along ? e / kDepth : e % kTile;
      const std::uint32_t a_depth = a_along ? e % kDepth : e / kTile;
      const bool a_inside = first_row + a_row < rows && first_depth + a_depth < depth;
      const double left = a_inside ? a(first_row + a_row, first_depth + a_depth) : 0.0;
      shared.a[a_depth][a_row] = divisor == 1.0 ? left : left / divisor;
      const bool b_along = b.row_stride == 1;
      const std::uint32_t b_column = b_along ? e / kDepth : e % kTile;
      const std::uint32_t b_depth = b_along ? e % kDepth : e / kTile;
      const bool b_inside = first_column + b_column < columns && first_depth + b_depth < depth;
      shared.b[b_depth][b_column] =
          b_inside ? static_cast<double>(b(first_depth + b_depth, first_column + b_column)) : 0.0;
    }
  }

  MAYFLY_HOST_DEVICE static void multiply(const Place& at, std::uint32_t steps, State& state,
                                          const Shared& shared) {
    for (std::uint32_t k = 0; k < steps; ++k) {
      double left[kEach];
      double right[kEach];
      for (std::uint32_t i = 0; i < kEach; ++i) {
        left[i] = shared.a[k][at.thread / kSide + i * kSide];
        right[i] = shared.b[k][at.thread % kSide + i * kSide];
      }
      for (std::uint32_t i = 0; i < kEach; ++i) {
        for (std::uint32_t j = 0; j < kEach; ++j) {
          state.sum[i][j] += left[i] * right[j];
        }
      }
    }
  }

  MAYFLY_HOST_DEVICE void store(const Place& at, std::uint32_t first_row,
                                std::uint32_t first_column, const State& state) const {
    for (std::uint32_t i = 0; i < kEach; ++i) {
      for (std::uint32_t j = 0; j < kEach; ++j) {
        const std::uint32_t row = first_row + at.thread / kSide + i * kSide;
        const std::uint32_t column = first_column + at.thread % kSide + j * kSide;
        if (row < rows && column < columns) {
          out(row, column) = static_cast<Out>(state.sum[i][j]);
        }
      }
    }
  }
};

/// One class: its logits' gradients, image after image.
struct BiasGradient {
  std::uint32_t images;
  std::uint32_t classes;
  const double* logit_gradients;
  float* bias_gradient;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t k) const {
    double sum = 0;
    for (std::uint32_t image = 0; image < images; ++image) {
      sum += logit_gradients[std::uint64_t{image} * classes + k];
    }
    bias_gradient[k] = static_cast<float>(sum);
  }
};

/// One granule of the activations' gradient, scaled: every pixel of an image has the same.
template <typename T>
struct Spread {
  std::uint32_t area;
  std::uint32_t channels;
  const double* feature_gradients;
  const LossInput* input;
  T* x_gradient;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const std::uint32_t granules = channels / kGranule;
    const std::uint32_t image = i / granules / area;
    const double* const from =
        feature_gradients + std::uint64_t{image} * channels + i % granules * kGranule;
    const auto scale = static_cast<double>(input->scale);
    Granule value;
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      value.value[k] = static_cast<float>(from[k] * scale);
    }
    store_granule(value, x_gradient + std::uint64_t{kGranule} * i);
  }
};

bool fits(const ClassifierShape& shape) {
  return shape.width > 0 && shape.width <= 4096 && shape.features > 0 &&
         shape.features % kGranule == 0 && shape.features <= 65536 && shape.classes > 1 &&
         shape.classes <= 65536 && shape.images > 0 && shape.images <= 65536;
}

template <typename B, typename Out>
int launch_multiply(const Multiply<B, Out>& body, Stream stream) {
  constexpr std::uint32_t kTile = Multiply<B, Out>::kTile;
  return launch_blocks(body, {(body.rows + kTile - 1) / kTile, (body.columns + kTile - 1) / kTile},
                       stream);
}

using Forward = Multiply<float, double>;
using WeightGradient = Multiply<double, float>;
using FeatureGradient = Multiply<float, double>;

int classifier_forward(const ClassifierShape& shape, Dtype dtype, const void* x,
                       const float* weight, const float* bias, const ClassifierMemory& memory,
                       Stream stream) {
  if (!fits(shape)) {
    return kInvalidArguments;
  }
  const std::uint32_t area = shape.width * shape.width;
  const std::uint64_t count = std::uint64_t{shape.images} * shape.features;
  const int pooled = with_type_of(dtype, [&](auto value) {
    using T = decltype(value);
    return launch_each(
        AveragePool<T>{area, shape.features, static_cast<const T*>(x), memory.features}, count,
        stream);
  });
  if (pooled != 0) {
    return pooled;
  }
  // CPU's order: a product is weight * feature, which is the same number as feature * weight.
  return launch_multiply(Forward{shape.images,
                                 shape.classes,
                                 shape.features,
                                 1.0,
                                 {memory.features, shape.features, 1},
                                 {weight, 1, shape.features},
                                 bias,
                                 {memory.logits, shape.classes, 1}},
                         stream);
}

template <typename T>
int spread_as(const ClassifierShape& shape, const LossInput* input, const ClassifierMemory& memory,
              void* x_gradient, Stream stream) {
  const ActivationShape activations = shape.activations();
  return launch_each(Spread<T>{shape.width * shape.width, shape.features, memory.feature_gradients,
                               input, static_cast<T*>(x_gradient)},
                     activations.elements() / kGranule, stream);
}

int classifier_backward(const ClassifierShape& shape, Dtype dtype, const float* weight,
                        const LossInput* input, const ClassifierMemory& memory,
                        float* weight_gradient, float* bias_gradient, void* x_gradient,
                        Stream stream) {
  if (!fits(shape)) {
    return kInvalidArguments;
  }
  const int bias =
      launch_each(BiasGradient{shape.images, shape.classes, memory.logit_gradients, bias_gradient},
                  shape.classes, stream);
  const int weights = launch_multiply(WeightGradient{shape.classes,
                                                     shape.features,
                                                     shape.images,
                                                     1.0,
                                                     {memory.logit_gradients, 1, shape.classes},
                                                     {memory.features, shape.features, 1},
                                                     nullptr,
                                                     {weight_gradient, shape.features, 1}},
                                      stream);
  const int features =
      launch_multiply(FeatureGradient{shape.images,
                                      shape.features,
                                      shape.classes,
                                      static_cast<double>(shape.width) * shape.width,
                                      {memory.logit_gradients, shape.classes, 1},
                                      {weight, shape.features, 1},
                                      nullptr,
                                      {memory.feature_gradients, shape.features, 1}},
                      stream);
  const int spread = with_type_of(dtype, [&](auto value) {
    return spread_as<decltype(value)>(shape, input, memory, x_gradient, stream);
  });
  return first_failure(bias, weights, features, spread);
}

}  // namespace

void add_classifier_kernels(Kernels& table) {
  table.classifier_forward = classifier_forward;
  table.classifier_backward = classifier_backward;
}

int load_classifier_kernels() {
  return first_failure(load_each<AveragePool<float>, AveragePool<Bf16>, AveragePool<Fp16>,
                                 BiasGradient, Spread<float>, Spread<Bf16>, Spread<Fp16>>(),
                       load_blocks<Forward, WeightGradient>());
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
