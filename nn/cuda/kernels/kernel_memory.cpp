// The sizes and divisions of memory blocks that caller and kernels agree on.

#include "nn/cuda/kernels/grids.hpp"
#include "nn/cuda/kernels/kernels.hpp"

namespace mayfly::nn::cuda {
namespace {

// Divides a block of memory into pieces; each begins at a multiple of 16 bytes.
class Divider {
 public:
  explicit Divider(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  template <typename T>
  T* take(std::size_t count) {
    T* const piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (count * sizeof(T) + 15) / 16 * 16;
    return piece;
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

ClassifierMemory divide(Divider& memory, const ClassifierShape& shape) {
  const std::size_t features = std::size_t{shape.images} * shape.features;
  const std::size_t logits = std::size_t{shape.images} * shape.classes;
  ClassifierMemory out;
  out.features = memory.take<double>(features);
  out.logits = memory.take<double>(logits);
  out.logit_gradients = memory.take<double>(logits);
  out.feature_gradients = memory.take<double>(features);
  out.losses = memory.take<double>(shape.images);
  out.hits = memory.take<std::uint32_t>(shape.images);
  return out;
}

}  // namespace

NormFactors norm_factors_at(void* memory, std::uint32_t channels) {
  Divider divider(memory);
  NormFactors out;
  out.inverse_deviation = divider.take<double>(channels);
  out.mean = divider.take<float>(channels);
  out.scale = divider.take<float>(channels);
  out.shift = divider.take<float>(channels);
  out.centred_factor = divider.take<float>(channels);
  out.constant = divider.take<float>(channels);
  return out;
}

std::size_t norm_sum_bytes(const ActivationShape& shape) {
  if (!has_rows(shape)) {
    return 0;
  }
  // A value of each channel, then two sums for each part of the rows.
  return (1 + 2 * std::size_t{sum_grid(shape).parts}) * shape.channels * sizeof(double);
}

std::size_t classifier_bytes(const ClassifierShape& shape) {
  Divider divider(nullptr);
  (void)divide(divider, shape);
  return divider.used();
}

ClassifierMemory classifier_memory_at(void* memory, const ClassifierShape& shape) {
  Divider divider(memory);
  return divide(divider, shape);
}

std::uint32_t number_filter_blocks(std::span<Filter> filters) {
  std::uint32_t block = 0;
  for (Filter& filter : filters) {
    filter.first_block = block;
    block += blocks_of(filter);
  }
  return block;
}

}  // namespace mayfly::nn::cuda
