// Batch norm: the sums over all rows of a channel, and the factors per channel that result from
// them. The formulas are those of nn/cpu/block_layers, in double.

#include "nn/cuda/kernels/grids.hpp"
#include "nn/cuda/kernels/launch.hpp"
#include "nn/cuda/kernels/parts.hpp"

namespace mayfly::nn::cuda::MAYFLY_SIDE {
namespace {

constexpr double kEpsilon = 1e-5;  // PyTorch's default
constexpr std::uint32_t kRowThreads = RowGrid::kThreads;

// Scratch: one value of each channel (the pivot), then for each part of the rows the first sums of
// its channels and their second sums.

/// Sums over the rows of one part. Terms defines the summed terms: an object per thread, made for
/// eight channels, that returns two terms per element. Each thread adds up its few rows in fp32;
/// threads and parts are added in double.
template <typename Terms>
struct SumRows {
  static constexpr int kThreads = RowGrid::kThreads;
  using Shared = PairSums<kThreads, kGranule>;
  using State = Nothing;

  RowGrid grid;
  Terms terms;
  double* sums;

  MAYFLY_HOST_DEVICE int folds() const {
    int count = 0;
    while ((1U << count) < grid.row_threads) {
      ++count;
    }
    return count;
  }
  MAYFLY_HOST_DEVICE int phases() const { return 2 + folds(); }

  MAYFLY_HOST_DEVICE void phase(int number, const Place& at, State& /*state*/,
                                Shared& shared) const {
    if (number == 0) {
      add_rows(at, shared);
    } else if (number <= folds()) {
      shared.fold(at.thread, kRowThreads >> number);
    } else if (at.thread < grid.lanes) {
      store(at, shared);
    }
  }

  MAYFLY_HOST_DEVICE void add_rows(const Place& at, Shared& shared) const {
    const std::uint32_t channel = grid.first_channel(at.column, at.thread);
    const typename Terms::Centre centre = terms.centre_of(channel, grid.channels);
    float first[kGranule] = {};
    float second[kGranule] = {};
    const std::uint64_t end = grid.end_row(at.block);
    for (std::uint64_t row = grid.first_row(at.block, at.thread); row < end;
         row += grid.row_threads) {
      terms.add(row * grid.channels + channel, centre, first, second);
    }
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      shared.first[k][at.thread] = static_cast<double>(first[k]);
      shared.second[k][at.thread] = static_cast<double>(second[k]);
    }
  }

  MAYFLY_HOST_DEVICE void store(const Place& at, const Shared& shared) const {
    const std::uint32_t channel = grid.first_channel(at.column, at.thread);
    double* const to = sums + (std::uint64_t{1} + 2 * at.block) * grid.channels + channel;
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      to[k] = shared.first[k][at.thread];
      to[grid.channels + k] = shared.second[k][at.thread];
    }
    if (at.block == 0) {
      terms.store_centre(terms.centre_of(channel, grid.channels), sums + channel);
    }
  }
};

/// x - pivot and its square, the pivot being the channel's first value: the squared value is then
/// about as large as the deviation, and a large mean does not cost digits of the variance.
template <typename T>
struct Moments {
  using Centre = Granule;
  const T* x;

  MAYFLY_HOST_DEVICE Centre centre_of(std::uint32_t channel, std::uint32_t /*channels*/) const {
    return load_granule(x + channel);
  }
  MAYFLY_HOST_DEVICE void add(std::uint64_t at, const Centre& centre, float (&first)[kGranule],
                              float (&second)[kGranule]) const {
    const Granule value = load_granule(x + at);
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      const float deviation = value.value[k] - centre.value[k];
      first[k] += deviation;
      second[k] = fused(deviation, deviation, second[k]);
    }
  }
  MAYFLY_HOST_DEVICE void store_centre(const Centre& centre, double* to) const {
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      to[k] = static_cast<double>(centre.value[k]);
    }
  }
};

/// g and g * (x - mean).
template <typename T>
struct GradientTerms {
  using Centre = Granule;
  const T* gradient;
  const T* addend;
  const std::uint8_t* mask;
  const T* x;
  const float* mean;
  T* masked;

  MAYFLY_HOST_DEVICE Centre centre_of(std::uint32_t channel, std::uint32_t /*channels*/) const {
    return load_granule(mean + channel);
  }
  MAYFLY_HOST_DEVICE void add(std::uint64_t at, const Centre& centre, float (&first)[kGranule],
                              float (&second)[kGranule]) const {
    const Granule value = load_granule(x + at);
    const Granule g = total(at);
    if (masked != nullptr) {
      store_granule(g, masked + at);
    }
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      first[k] += g.value[k];
      second[k] = fused(g.value[k], value.value[k] - centre.value[k], second[k]);
    }
  }
  /// The value as it is stored, so that later reads give exactly what was summed.
  MAYFLY_HOST_DEVICE Granule total(std::uint64_t at) const {
    Granule g = load_granule(gradient + at);
    if (addend != nullptr) {
      const Granule other = load_granule(addend + at);
      for (std::uint32_t k = 0; k < kGranule; ++k) {
        g.value[k] += other.value[k];
      }
      g = rounded<T>(g);
    }
    if (mask != nullptr) {
      keep_masked(g, mask[at / kGranule]);
    }
    return g;
  }
  MAYFLY_HOST_DEVICE void store_centre(const Centre& /*centre*/, double* /*to*/) const {}
};

/// Adds up the parts of 32 channels, then does what follows per channel.
template <typename Then>
struct FinishSums {
  static constexpr int kThreads = 1024;
  static constexpr std::uint32_t kChannels = 32;
  static constexpr std::uint32_t kRows = kThreads / kChannels;
  static constexpr int kFolds = 5;
  using Shared = PairSums<kThreads, 1>;
  using State = Nothing;

  const double* sums;
  std::uint32_t channels;
  std::uint32_t parts;
  Then then;

  MAYFLY_HOST_DEVICE int phases() const { return 2 + kFolds; }

  MAYFLY_HOST_DEVICE void phase(int number, const Place& at, State& /*state*/,
                                Shared& shared) const {
    const std::uint32_t channel = at.block * kChannels + at.thread % kChannels;
    if (number == 0) {
      double first = 0;
      double second = 0;
      for (std::uint32_t part = at.thread / kChannels; channel < channels && part < parts;
           part += kRows) {
        const double* const from = sums + (std::uint64_t{1} + 2 * part) * channels + channel;
        first += from[0];
        second += from[channels];
      }
      shared.first[0][at.thread] = first;
      shared.second[0][at.thread] = second;
    } else if (number <= kFolds) {
      shared.fold(at.thread, static_cast<std::uint32_t>(kThreads) >> number);
    } else if (at.thread < kChannels && channel < channels) {
      const double pivot = Then::kWantsPivot ? sums[channel] : 0;
      then(channel, shared.first[0][at.thread], shared.second[0][at.thread], pivot);
    }
  }
};

MAYFLY_HOST_DEVICE inline void fold_factors(const NormFactors& factors, std::uint32_t c,
                                            float scale, float shift) {
  const double factor = static_cast<double>(scale) * factors.inverse_deviation[c];
  factors.scale[c] = static_cast<float>(factor);
  factors.shift[c] = static_cast<float>(static_cast<double>(shift) -
                                        static_cast<double>(factors.mean[c]) * factor);
}

struct Measure {
  static constexpr bool kWantsPivot = true;
  double count;
  const float* scale;
  const float* shift;
  NormFactors factors;
  float* mean;
  float* variance;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t c, double first, double second,
                                     double pivot) const {
    const double centre = first / count;
    const double spread = second / count - centre * centre;
    const double biased = spread < 0 ? 0 : spread;  // a NaN passes: the loss must show it
    factors.mean[c] = static_cast<float>(pivot + centre);
    factors.inverse_deviation[c] = 1.0 / sqrt(biased + kEpsilon);
    mean[c] = factors.mean[c];
    variance[c] = static_cast<float>(biased * (count / (count - 1.0)));
    fold_factors(factors, c, scale[c], shift[c]);
  }
};

// With d = 1/deviation, S1 = sum g, S2 = sum g * (x - mean), n values per channel:
//   dx = scale * d * (g - S1 / n - (x - mean) * d^2 * S2 / n)
struct Derive {
  static constexpr bool kWantsPivot = false;
  double count;
  NormFactors factors;
  const LossInput* input;
  float* scale_gradient;
  float* shift_gradient;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t c, double first, double second,
                                     double /*pivot*/) const {
    const double inverse = factors.inverse_deviation[c];
    const double factor = static_cast<double>(factors.scale[c]);
    factors.centred_factor[c] = static_cast<float>(-factor * inverse * inverse * second / count);
    factors.constant[c] = static_cast<float>(-factor * first / count);
    const auto unscale = static_cast<double>(input->unscale);
    scale_gradient[c] = static_cast<float>(second * inverse * unscale);
    shift_gradient[c] = static_cast<float>(first * unscale);
  }
};

struct UseRunning {
  const float* scale;
  const float* shift;
  const float* mean;
  const float* variance;
  NormFactors factors;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t c) const {
    factors.mean[c] = mean[c];
    factors.inverse_deviation[c] = 1.0 / sqrt(static_cast<double>(variance[c]) + kEpsilon);
    fold_factors(factors, c, scale[c], shift[c]);
  }
};

template <typename Terms>
int launch_sums(const ActivationShape& shape, const Terms& terms, double* sums, Stream stream) {
  const RowGrid grid = sum_grid(shape);
  return launch_blocks(SumRows<Terms>{grid, terms, sums}, {grid.parts, grid.columns}, stream);
}

template <typename Then>
int launch_finish(const ActivationShape& shape, const double* sums, const Then& then,
                  Stream stream) {
  using Body = FinishSums<Then>;
  return launch_blocks(Body{sums, shape.channels, sum_grid(shape).parts, then},
                       {(shape.channels + Body::kChannels - 1) / Body::kChannels, 1}, stream);
}

int norm_sums(const ActivationShape& shape, Dtype dtype, const void* x, double* sums,
              Stream stream) {
  if (!has_rows(shape)) {
    return kInvalidArguments;
  }
  return with_type_of(dtype, [&](auto value) {
    using T = decltype(value);
    return launch_sums(shape, Moments<T>{static_cast<const T*>(x)}, sums, stream);
  });
}

int norm_measure(const ActivationShape& shape, const double* sums, const float* scale,
                 const float* shift, const NormFactors& factors, float* mean, float* variance,
                 Stream stream) {
  if (!has_rows(shape)) {
    return kInvalidArguments;
  }
  const auto count = static_cast<double>(shape.rows());
  return launch_finish(shape, sums, Measure{count, scale, shift, factors, mean, variance}, stream);
}

int norm_use_running(std::uint32_t channels, const float* scale, const float* shift,
                     const float* mean, const float* variance, const NormFactors& factors,
                     Stream stream) {
  return launch_each(UseRunning{scale, shift, mean, variance, factors}, channels, stream);
}

template <typename T>
GradientTerms<T> terms_of(const NormGradientSums& from) {
  return {static_cast<const T*>(from.gradient),
          static_cast<const T*>(from.addend),
          from.mask,
          static_cast<const T*>(from.x),
          from.mean,
          static_cast<T*>(from.masked)};
}

int norm_gradient_sums(const ActivationShape& shape, Dtype dtype, const NormGradientSums& arguments,
                       double* sums, Stream stream) {
  if (!has_rows(shape)) {
    return kInvalidArguments;
  }
  return with_type_of(dtype, [&](auto value) {
    return launch_sums(shape, terms_of<decltype(value)>(arguments), sums, stream);
  });
}

int norm_derive(const ActivationShape& shape, const double* sums, const LossInput* input,
                const NormFactors& factors, float* scale_gradient, float* shift_gradient,
                Stream stream) {
  if (!has_rows(shape)) {
    return kInvalidArguments;
  }
  const auto count = static_cast<double>(shape.rows());
  return launch_finish(shape, sums, Derive{count, factors, input, scale_gradient, shift_gradient},
                       stream);
}

}  // namespace

void add_norm_sum_kernels(Kernels& table) {
  table.norm_sums = norm_sums;
  table.norm_measure = norm_measure;
  table.norm_use_running = norm_use_running;
  table.norm_gradient_sums = norm_gradient_sums;
  table.norm_derive = norm_derive;
}

int load_norm_sum_kernels() {
  return first_failure(
      load_blocks<SumRows<Moments<float>>, SumRows<Moments<Bf16>>, SumRows<Moments<Fp16>>,
                  SumRows<GradientTerms<float>>, SumRows<GradientTerms<Bf16>>,
                  SumRows<GradientTerms<Fp16>>, FinishSums<Measure>, FinishSums<Derive>>(),
      load_each<UseRunning>());
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
