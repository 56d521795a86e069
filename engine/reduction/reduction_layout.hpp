#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/plan/exact_sum.hpp"
#include "nn/model.hpp"

namespace mayfly::engine {

/// What one step's reduction sums, as one flat vector of tensors:
///   [ loss | batch statistics | parameters' gradients ]
/// Gradients become ready from the end, so the buckets are contiguous ranges taken from the end;
/// the last one also carries the loss and the statistics.
class ReductionLayout {
 public:
  /// A contiguous range of the vector that is all-reduced as one message.
  struct Bucket {
    std::size_t first = 0;        ///< element
    std::size_t last = 0;         ///< one past the last element
    std::size_t first_block = 0;  ///< of the exact sum's blocks
    std::size_t last_block = 0;   ///< one past the last
  };

  /// The loss takes one padded slot, so that what follows stays aligned for vector loads.
  static constexpr std::size_t kLossElements = 16;
  /// Smaller buckets start earlier but cost a round of latencies each (ADR 11).
  static constexpr std::size_t kBucketElements = std::size_t{128} << 10;

  explicit ReductionLayout(const nn::Model& model, std::size_t bucket_elements = kBucketElements);

  /// Cuts anew into buckets of at least so many elements, as far as tensors allow. Only between
  /// steps, when nobody reads the buckets.
  void cut_buckets(std::size_t bucket_elements);

  [[nodiscard]] std::size_t statistics_offset() const { return kLossElements; }
  [[nodiscard]] std::size_t parameters_offset() const { return parameters_offset_; }
  [[nodiscard]] std::size_t element_count() const { return blocks_.element_count(); }
  /// The exact sum's blocks before it belong to the loss and the statistics.
  [[nodiscard]] std::size_t first_parameter_block() const {
    return blocks_.first_block_at(parameters_offset_);
  }
  /// A bucket's blocks of parameters, counted from the first of all: what may be on a device.
  [[nodiscard]] collectives::BlockRange device_blocks(std::size_t bucket) const;
  /// The part of a bucket that is always summed on the host: of the loss and the statistics.
  [[nodiscard]] Bucket host_part(std::size_t bucket) const;
  [[nodiscard]] const collectives::BlockLayout& blocks() const { return blocks_; }
  /// In the order in which they become ready.
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  std::size_t parameters_offset_;
  std::vector<std::size_t> borders_;  // elements where a parameter's tensor starts, rising
  collectives::BlockLayout blocks_;
  std::size_t bucket_elements_ = 0;  // that buckets_ are cut by
  std::vector<Bucket> buckets_;
};

/// What is in each bucket, for people: "layer3.2.conv1.weight to fc.bias".
[[nodiscard]] std::vector<std::string> bucket_names(const nn::Model& model,
                                                    const ReductionLayout& layout);

}  // namespace mayfly::engine
