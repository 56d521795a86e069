#pragma once

// The layout of the vector that a step's reduction sums, and of its buckets. Any thread, except
// that cut_buckets() must be called while no other thread uses the layout.

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/plan/exact_sum.hpp"

namespace mayfly::engine {

struct SummedTensor {
  std::string name;      ///< for messages
  std::size_t size = 0;  ///< in elements, at least one
};

/// The tensors that a step's reduction sums, besides the loss: statistics, and the gradients of
/// parameters. The parameters whose gradients become ready first are at the end.
struct SummedTensors {
  std::vector<SummedTensor> statistics;  ///< may be empty
  std::vector<SummedTensor> parameters;
};

/// One step's reduction sums a flat vector of tensors:
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

  /// The loss has a padded slot, so that the next elements are aligned for vector loads.
  static constexpr std::size_t kLossElements = 16;
  /// Smaller buckets start earlier but cost a round of latencies each (ADR 11).
  static constexpr std::size_t kBucketElements = std::size_t{128} << 10;

  explicit ReductionLayout(const SummedTensors& tensors,
                           std::size_t bucket_elements = kBucketElements);

  /// Cuts the vector into new buckets of at least `bucket_elements` elements, at borders of
  /// tensors. Only between steps, when no thread reads the buckets.
  void cut_buckets(std::size_t bucket_elements);

  [[nodiscard]] std::size_t statistics_offset() const { return kLossElements; }
  [[nodiscard]] std::size_t parameters_offset() const { return parameters_offset_; }
  [[nodiscard]] std::size_t element_count() const { return blocks_.element_count(); }
  /// The first of the exact sum's blocks that belongs to parameters; those before it belong to the
  /// loss and the statistics.
  [[nodiscard]] std::size_t first_parameter_block() const {
    return blocks_.first_block_at(parameters_offset_);
  }
  /// The blocks of a bucket that belong to parameters, whose sums may be on a device. They are
  /// counted from first_parameter_block().
  [[nodiscard]] collectives::BlockRange device_blocks(std::size_t bucket) const;
  /// The part of a bucket that is always summed on the host: the loss and the statistics.
  [[nodiscard]] Bucket host_part(std::size_t bucket) const;
  [[nodiscard]] const collectives::BlockLayout& blocks() const { return blocks_; }
  /// The buckets in the order in which they become ready.
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  /// The content of each bucket, human-readable: "layer3.2.conv1.weight to fc.bias".
  [[nodiscard]] std::vector<std::string> bucket_names() const;

 private:
  std::size_t parameters_offset_;
  std::vector<std::size_t> borders_;  // first elements of the parameters' tensors, ascending
  std::vector<std::string> names_;    // of these tensors
  collectives::BlockLayout blocks_;
  std::size_t bucket_elements_ = 0;  // the size for which buckets_ were cut
  std::vector<Bucket> buckets_;
};

}  // namespace mayfly::engine
