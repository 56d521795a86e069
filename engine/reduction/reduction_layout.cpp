#include "engine/reduction/reduction_layout.hpp"

#include <algorithm>

namespace mayfly::engine {
namespace {

std::size_t element_count_of(const std::vector<SummedTensor>& tensors) {
  std::size_t count = 0;
  for (const SummedTensor& tensor : tensors) {
    count += tensor.size;
  }
  return count;
}

std::vector<std::size_t> tensor_sizes(const SummedTensors& tensors) {
  std::vector<std::size_t> sizes = {ReductionLayout::kLossElements};
  for (const SummedTensor& tensor : tensors.statistics) {
    sizes.push_back(tensor.size);
  }
  for (const SummedTensor& tensor : tensors.parameters) {
    sizes.push_back(tensor.size);
  }
  return sizes;
}

}  // namespace

ReductionLayout::ReductionLayout(const SummedTensors& tensors, std::size_t bucket_elements)
    : parameters_offset_(kLossElements + element_count_of(tensors.statistics)),
      blocks_(tensor_sizes(tensors)) {
  std::size_t border = parameters_offset_;
  for (const SummedTensor& tensor : tensors.parameters) {
    borders_.push_back(border);
    names_.push_back(tensor.name);
    border += tensor.size;
  }
  cut_buckets(bucket_elements);
}

void ReductionLayout::cut_buckets(std::size_t bucket_elements) {
  if (bucket_elements == bucket_elements_) {
    return;
  }
  bucket_elements_ = bucket_elements;
  buckets_.clear();
  std::size_t last = element_count();
  std::size_t last_block = blocks_.block_count();
  for (auto border = borders_.rbegin(); border != borders_.rend(); ++border) {
    const std::size_t first = *border;
    if (last - first >= bucket_elements && first > parameters_offset_) {
      const std::size_t first_block = blocks_.first_block_at(first);
      buckets_.push_back({first, last, first_block, last_block});
      last = first;
      last_block = first_block;
    }
  }
  buckets_.push_back({0, last, 0, last_block});
}

collectives::BlockRange ReductionLayout::device_blocks(std::size_t bucket) const {
  const std::size_t before = first_parameter_block();
  const std::size_t first = std::max(buckets_[bucket].first_block, before);
  return {static_cast<std::uint32_t>(first - before),
          static_cast<std::uint32_t>(buckets_[bucket].last_block - before)};
}

ReductionLayout::Bucket ReductionLayout::host_part(std::size_t bucket) const {
  Bucket part = buckets_[bucket];
  part.first = std::min(part.first, parameters_offset_);
  part.last = std::min(part.last, parameters_offset_);
  part.first_block = std::min(part.first_block, first_parameter_block());
  part.last_block = std::min(part.last_block, first_parameter_block());
  return part;
}

std::vector<std::string> ReductionLayout::bucket_names() const {
  std::vector<std::string> names;
  for (const Bucket& bucket : buckets_) {
    std::string first;
    std::string last;
    for (std::size_t i = 0; i < borders_.size(); ++i) {
      if (borders_[i] >= bucket.first && borders_[i] < bucket.last) {
        first = first.empty() ? names_[i] : first;
        last = names_[i];
      }
    }
    names.push_back(first == last ? first : first + " to " + last);
  }
  return names;
}

}  // namespace mayfly::engine
