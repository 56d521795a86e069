// Batch norm: the passes over all elements once the factors per channel are known.

#include "nn/cuda/kernels/grids.hpp"
#include "nn/cuda/kernels/launch.hpp"
#include "nn/cuda/kernels/parts.hpp"

namespace mayfly::nn::cuda::MAYFLY_SIDE {
namespace {

constexpr std::uint32_t kRowsPerThread = 8;
constexpr std::uint32_t kPartsMax = 0x7fffffffU;

/// Walks down a thread's rows, two at a time, so that one's loads do not wait for the other's
/// store: load(offset of an element) gives what use(loaded, offset) needs.
template <typename Load, typename Use>
MAYFLY_HOST_DEVICE void for_rows(const RowGrid& grid, const Place& at, std::uint32_t channel,
                                 const Load& load, const Use& use) {
  const std::uint64_t end = grid.end_row(at.block);
  for (std::uint64_t row = grid.first_row(at.block, at.thread); row < end;
       row += 2 * grid.row_threads) {
    const bool has_second = row + grid.row_threads < end;
    const std::uint64_t first_at = row * grid.channels + channel;
    const std::uint64_t second_at =
        has_second ? first_at + std::uint64_t{grid.row_threads} * grid.channels : first_at;
    const auto first = load(first_at);
    const auto second = load(second_at);
    use(first, first_at);
    if (has_second) {
      use(second, second_at);
    }
  }
}

enum class Residual { kNone, kPlain, kNormed };

struct Pair {
  Granule first;
  Granule second;
};

template <typename T, Residual kResidual>
struct Apply {
  static constexpr int kThreads = RowGrid::kThreads;
  using Shared = Nothing;
  using State = Nothing;

  RowGrid grid;
  NormApply arguments;

  MAYFLY_HOST_DEVICE int phases() const { return 1; }

  MAYFLY_HOST_DEVICE void phase(int /*number*/, const Place& at, State& /*state*/,
                                Shared& /*shared*/) const {
    const std::uint32_t channel = grid.first_channel(at.column, at.thread);
    const Granule scale = load_granule(arguments.scale + channel);
    const Granule shift = load_granule(arguments.shift + channel);
    Granule residual_scale{};
    Granule residual_shift{};
    if constexpr (kResidual == Residual::kNormed) {
      residual_scale = load_granule(arguments.residual_scale + channel);
      residual_shift = load_granule(arguments.residual_shift + channel);
    }
    for_rows(
        grid, at, channel,
        [&](std::uint64_t i) {
          Pair loaded{load_granule(static_cast<const T*>(arguments.x) + i), {}};
          if constexpr (kResidual != Residual::kNone) {
            loaded.second = load_granule(static_cast<const T*>(arguments.residual) + i);
          }
          return loaded;
        },
        [&](const Pair& loaded, std::uint64_t i) {
          Granule y;
          for (std::uint32_t k = 0; k < kGranule; ++k) {
            y.value[k] = fused(loaded.first.value[k], scale.value[k], shift.value[k]);
            if constexpr (kResidual == Residual::kPlain) {
              y.value[k] += loaded.second.value[k];
            } else if constexpr (kResidual == Residual::kNormed) {
              y.value[k] +=
                  fused(loaded.second.value[k], residual_scale.value[k], residual_shift.value[k]);
            }
          }
          store(y, i);
        });
  }

  MAYFLY_HOST_DEVICE void store(Granule& y, std::uint64_t i) const {
    if (arguments.mask != nullptr) {
      std::uint32_t bits = 0;
      for (std::uint32_t k = 0; k < kGranule; ++k) {
        bits |= (y.value[k] > 0.0F ? 1U : 0U) << k;
      }
      arguments.mask[i / kGranule] = static_cast<std::uint8_t>(bits);
    }
    if (arguments.relu) {
      for (std::uint32_t k = 0; k < kGranule; ++k) {
        y.value[k] = relu(y.value[k]);
      }
    }
    store_granule(y, static_cast<T*>(arguments.out) + i);
  }
};

template <typename T>
struct ApplyGradient {
  static constexpr int kThreads = RowGrid::kThreads;
  using Shared = Nothing;
  using State = Nothing;

  RowGrid grid;
  NormGradientApply arguments;
  NormFactors factors;

  MAYFLY_HOST_DEVICE int phases() const { return 1; }

  MAYFLY_HOST_DEVICE void phase(int /*number*/, const Place& at, State& /*state*/,
                                Shared& /*shared*/) const {
    const std::uint32_t channel = grid.first_channel(at.column, at.thread);
    const Granule scale = load_granule(factors.scale + channel);
    const Granule centred_factor = load_granule(factors.centred_factor + channel);
    const Granule constant = load_granule(factors.constant + channel);
    const Granule mean = load_granule(factors.mean + channel);
    for_rows(
        grid, at, channel,
        [&](std::uint64_t i) {
          Pair loaded{load_granule(static_cast<const T*>(arguments.gradient) + i),
                      load_granule(static_cast<const T*>(arguments.x) + i)};
          if (arguments.mask != nullptr) {
            keep_masked(loaded.first, arguments.mask[i / kGranule]);
          }
          return loaded;
        },
        [&](const Pair& loaded, std::uint64_t i) {
          if (arguments.masked != nullptr) {
            store_granule(loaded.first, static_cast<T*>(arguments.masked) + i);
          }
          Granule dx;
          for (std::uint32_t k = 0; k < kGranule; ++k) {
            const float centred = fused(centred_factor.value[k],
                                        loaded.second.value[k] - mean.value[k], constant.value[k]);
            dx.value[k] = fused(scale.value[k], loaded.first.value[k], centred);
          }
          store_granule(dx, static_cast<T*>(arguments.x_gradient) + i);
        });
  }
};

template <typename Body, typename... Arguments>
int launch_rows(const ActivationShape& shape, Stream stream, const Arguments&... arguments) {
  const RowGrid grid = row_grid(shape, kRowsPerThread, kPartsMax);
  return launch_blocks(Body{grid, arguments...}, {grid.parts, grid.columns}, stream);
}

template <typename T>
int norm_apply_as(const ActivationShape& shape, const NormApply& apply, Stream stream) {
  if (apply.residual == nullptr) {
    return launch_rows<Apply<T, Residual::kNone>>(shape, stream, apply);
  }
  if (apply.residual_scale == nullptr) {
    return launch_rows<Apply<T, Residual::kPlain>>(shape, stream, apply);
  }
  return launch_rows<Apply<T, Residual::kNormed>>(shape, stream, apply);
}

int norm_apply(const ActivationShape& shape, Dtype dtype, const NormApply& apply, Stream stream) {
  if (!has_rows(shape)) {
    return kInvalidArguments;
  }
  return with_type_of(
      dtype, [&](auto value) { return norm_apply_as<decltype(value)>(shape, apply, stream); });
}

int norm_gradient_apply(const ActivationShape& shape, Dtype dtype,
                        const NormGradientApply& arguments, const NormFactors& factors,
                        Stream stream) {
  if (!has_rows(shape)) {
    return kInvalidArguments;
  }
  return with_type_of(dtype, [&](auto value) {
    return launch_rows<ApplyGradient<decltype(value)>>(shape, stream, arguments, factors);
  });
}

}  // namespace

void add_norm_apply_kernels(Kernels& table) {
  table.norm_apply = norm_apply;
  table.norm_gradient_apply = norm_gradient_apply;
}

int load_norm_apply_kernels() {
  return load_blocks<Apply<float, Residual::kNone>, Apply<float, Residual::kPlain>,
                     Apply<float, Residual::kNormed>, Apply<Bf16, Residual::kNone>,
                     Apply<Bf16, Residual::kPlain>, Apply<Bf16, Residual::kNormed>,
                     Apply<Fp16, Residual::kNone>, Apply<Fp16, Residual::kPlain>,
                     Apply<Fp16, Residual::kNormed>, ApplyGradient<float>, ApplyGradient<Bf16>,
                     ApplyGradient<Fp16>>();
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
