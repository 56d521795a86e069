#pragma once

// The samples of each microbatch: the product's endless stream, divided as the engine divides it.

#include <cstdint>

#include "base/random.hpp"
#include "datasets/core/sample_stream.hpp"

namespace mayfly::sim {

class SampleOrder {
 public:
  SampleOrder(std::uint64_t seed, std::uint64_t sample_count, std::uint32_t microbatches,
              std::uint32_t microbatch_size)
      : stream_(seed, sample_count), microbatches_(microbatches), size_(microbatch_size) {}

  /// Calls `each` with every entry of a microbatch; steps count from 1.
  template <typename Each>
  void for_each(std::uint64_t step, std::uint32_t microbatch, Each each) const {
    const std::uint64_t begin = ((step - 1) * microbatches_ + microbatch) * size_;
    for (std::uint64_t position = begin; position < begin + size_; ++position) {
      each(stream_.at(position));
    }
  }
  /// An order-free hash of the microbatch's samples.
  [[nodiscard]] std::uint64_t hash(std::uint64_t step, std::uint32_t microbatch) const {
    std::uint64_t sum = 0;
    for_each(step, microbatch, [&sum](const datasets::StreamEntry& entry) { sum += hash(entry); });
    return sum;
  }
  [[nodiscard]] static std::uint64_t hash(const datasets::StreamEntry& entry) {
    return mix64(mix64(entry.sample) + entry.epoch);
  }
  [[nodiscard]] std::uint64_t sample_count() const { return stream_.sample_count(); }
  [[nodiscard]] std::uint32_t microbatches() const { return microbatches_; }

 private:
  datasets::SampleStream stream_;
  std::uint32_t microbatches_;
  std::uint32_t size_;
};

}  // namespace mayfly::sim
