// Weights and their gradients between the layouts of PyTorch and of cuDNN, and the optimizer.

#include "nn/cuda/kernels/grids.hpp"
#include "nn/cuda/kernels/launch.hpp"
#include "nn/cuda/kernels/parts.hpp"

namespace mayfly::nn::cuda::MAYFLY_SIDE {
namespace {

/// The part that one block moves: the weights between one output channel and some input channels.
struct FilterPart {
  Filter filter;
  std::uint32_t out_channel;
  std::uint32_t first_channel;
  std::uint32_t channels;  ///< where packed
  std::uint32_t weights;   ///< of these, those that exist in the flat array

  MAYFLY_HOST_DEVICE std::uint32_t taps() const { return filter.kernel * filter.kernel; }
  /// Offset in the flat array, in which the part is contiguous.
  MAYFLY_HOST_DEVICE std::uint64_t flat_at() const {
    const std::uint64_t row = std::uint64_t{out_channel} * filter.in_channels + first_channel;
    return filter.offset + row * taps();
  }
  /// Offset in the packed array of the part's first channel in one tap.
  MAYFLY_HOST_DEVICE std::uint64_t packed_at(std::uint32_t tap) const {
    const std::uint64_t row = std::uint64_t{out_channel} * taps() + tap;
    return filter.packed_offset + row * filter.packed_channels + first_channel;
  }
};

/// The filter that a block belongs to: the last one that begins at or before it.
MAYFLY_HOST_DEVICE inline Filter filter_of(const FilterRange& range, std::uint32_t block) {
  std::uint32_t low = 0;
  std::uint32_t high = range.count;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (range.table[middle].first_block <= block ? low : high) = middle;
  }
  return range.table[low];
}

MAYFLY_HOST_DEVICE inline FilterPart part_of(const Filter& filter, std::uint32_t block) {
  const std::uint32_t local = block - filter.first_block;
  const std::uint32_t across = channel_blocks(filter);
  FilterPart part{filter, local / across, local % across * kFilterChannels, 0, 0};
  const std::uint32_t left = filter.packed_channels - part.first_channel;
  part.channels = left < kFilterChannels ? left : kFilterChannels;
  const std::uint32_t existing =
      filter.in_channels > part.first_channel ? filter.in_channels - part.first_channel : 0;
  part.weights = existing < part.channels ? existing : part.channels;
  return part;
}

/// Moves a part through shared memory, so that both sides are read and written in order: the flat
/// array stores a channel's taps together, the packed one a tap's channels. Direction is the
/// direction of the copy.
template <typename Direction>
struct MoveFilters {
  static constexpr int kThreads = 256;
  struct Shared {
    float weight[kFilterChannels * kFilterKernelMax * kFilterKernelMax];
  };
  using State = Nothing;

  FilterRange range;
  Direction direction;

  MAYFLY_HOST_DEVICE int phases() const { return 2; }

  MAYFLY_HOST_DEVICE void phase(int number, const Place& at, State& /*state*/,
                                Shared& shared) const {
    const std::uint32_t block = range.first_block + at.block;
    const Filter filter = filter_of(range, block);
    if (is_flat(filter)) {
      if (number == 0) {
        copy(filter, block - filter.first_block, at.thread);
      }
      return;
    }
    const FilterPart part = part_of(filter, block);
    number == 0 ? direction.load(part, at.thread, shared.weight)
                : direction.store(part, at.thread, shared.weight);
  }

  MAYFLY_HOST_DEVICE void copy(const Filter& filter, std::uint32_t block,
                               std::uint32_t thread) const {
    const std::uint32_t size = filter.out_channels * filter.in_channels;
    const std::uint32_t first = block * kFlatElements;
    const std::uint32_t end = size - first < kFlatElements ? size : first + kFlatElements;
    for (std::uint32_t i = first + thread; i < end; i += kThreads) {
      direction.copy(filter.offset + i, filter.packed_offset + i);
    }
  }
};

template <typename T>
struct Pack {
  const float* flat;
  T* packed;

  MAYFLY_HOST_DEVICE void load(const FilterPart& part, std::uint32_t thread, float* shared) const {
    const float* const from = flat + part.flat_at();
    for (std::uint32_t i = thread; i < part.weights * part.taps(); i += 256) {
      shared[i] = from[i];
    }
  }
  MAYFLY_HOST_DEVICE void store(const FilterPart& part, std::uint32_t thread,
                                const float* shared) const {
    for (std::uint32_t i = thread; i < part.channels * part.taps(); i += 256) {
      const std::uint32_t tap = i / part.channels;
      const std::uint32_t channel = i % part.channels;
      const float value = channel < part.weights ? shared[channel * part.taps() + tap] : 0.0F;
      store_value(value, packed + part.packed_at(tap) + channel);
    }
  }
  MAYFLY_HOST_DEVICE void copy(std::uint64_t flat_at, std::uint64_t packed_at) const {
    store_value(flat[flat_at], packed + packed_at);
  }
};

template <typename T>
struct Unpack {
  const T* packed;
  const LossInput* input;
  float* flat;

  MAYFLY_HOST_DEVICE void load(const FilterPart& part, std::uint32_t thread, float* shared) const {
    for (std::uint32_t i = thread; i < part.channels * part.taps(); i += 256) {
      const std::uint32_t tap = i / part.channels;
      const std::uint32_t channel = i % part.channels;
      shared[channel * part.taps() + tap] =
          widen(packed[part.packed_at(tap) + channel]) * input->unscale;
    }
  }
  MAYFLY_HOST_DEVICE void store(const FilterPart& part, std::uint32_t thread,
                                const float* shared) const {
    float* const to = flat + part.flat_at();
    for (std::uint32_t i = thread; i < part.weights * part.taps(); i += 256) {
      to[i] = shared[i];
    }
  }
  MAYFLY_HOST_DEVICE void copy(std::uint64_t flat_at, std::uint64_t packed_at) const {
    flat[flat_at] = widen(packed[packed_at]) * input->unscale;
  }
};

/// Eight elements, or what is left of them.
struct Sgd {
  SgdOptions options;
  float rate;
  const float* gradient;
  float* parameters;
  float* momentum;
  std::uint64_t count;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const std::uint64_t at = std::uint64_t{kGranule} * i;
    if (at + kGranule > count) {
      for (std::uint64_t k = at; k < count; ++k) {
        update(gradient[k], parameters[k], momentum[k]);
      }
      return;
    }
    const Granule g = load_granule(gradient + at);
    Granule w = load_granule(parameters + at);
    Granule v = load_granule(momentum + at);
    for (std::uint32_t k = 0; k < kGranule; ++k) {
      update(g.value[k], w.value[k], v.value[k]);
    }
    store_granule(v, momentum + at);
    store_granule(w, parameters + at);
  }
  MAYFLY_HOST_DEVICE void update(float g, float& w, float& v) const {
    const float decayed = fused(options.weight_decay, w, g);
    v = fused(options.momentum, v, decayed);
    w = fused(-rate, v, w);
  }
};

template <typename Direction>
int move_filters(const FilterRange& range, const Direction& direction, Stream stream) {
  if (range.first_block >= range.last_block || range.count == 0) {
    return 0;
  }
  return launch_blocks(MoveFilters<Direction>{range, direction},
                       {range.last_block - range.first_block, 1}, stream);
}

int pack_filters(const FilterRange& range, Dtype dtype, const float* from, void* to,
                 Stream stream) {
  return with_type_of(dtype, [&](auto value) {
    using T = decltype(value);
    return move_filters(range, Pack<T>{from, static_cast<T*>(to)}, stream);
  });
}

int unpack_filter_gradients(const FilterRange& range, Dtype dtype, const LossInput* input,
                            const void* from, float* to, Stream stream) {
  return with_type_of(dtype, [&](auto value) {
    using T = decltype(value);
    return move_filters(range, Unpack<T>{static_cast<const T*>(from), input, to}, stream);
  });
}

int sgd_update(const SgdOptions& options, float learning_rate, const float* gradient,
               float* parameters, float* momentum, std::uint64_t count, Stream stream) {
  return launch_each(Sgd{options, learning_rate, gradient, parameters, momentum, count},
                     (count + kGranule - 1) / kGranule, stream);
}

}  // namespace

void add_parameter_kernels(Kernels& table) {
  table.pack_filters = pack_filters;
  table.unpack_filter_gradients = unpack_filter_gradients;
  table.sgd_update = sgd_update;
}

int load_parameter_kernels() {
  return first_failure(load_blocks<MoveFilters<Pack<float>>, MoveFilters<Pack<Bf16>>,
                                   MoveFilters<Pack<Fp16>>, MoveFilters<Unpack<float>>,
                                   MoveFilters<Unpack<Bf16>>, MoveFilters<Unpack<Fp16>>>(),
                       load_each<Sgd>());
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
