#include "engine/reduction/reduction_layout.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

std::vector<std::size_t> tensor_sizes(const nn::Model& model) {
  std::vector<std::size_t> sizes = {ReductionLayout::kLossElements};
  for (const nn::TensorInfo& tensor : model.statistics) {
    sizes.push_back(tensor.size);
  }
  for (const nn::TensorInfo& tensor : model.parameters) {
    sizes.push_back(tensor.size);
  }
  return sizes;
}

}  // namespace

ReductionLayout::ReductionLayout(const nn::Model& model, std::size_t bucket_elements)
    : parameters_offset_(kLossElements + model.statistic_count), blocks_(tensor_sizes(model)) {
  ENSURE(element_count() == parameters_offset_ + model.parameter_count,
         "the vector holds exactly the loss, the statistics and the parameters");
  for (const nn::TensorInfo& tensor : model.parameters) {
    borders_.push_back(parameters_offset_ + tensor.offset);
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

std::vector<std::string> bucket_names(const nn::Model& model, const ReductionLayout& layout) {
  std::vector<std::string> names;
  for (const ReductionLayout::Bucket& bucket : layout.buckets()) {
    std::string first;
    std::string last;
    for (const nn::TensorInfo& tensor : model.parameters) {
      const std::size_t begin = layout.parameters_offset() + tensor.offset;
      if (begin >= bucket.first && begin < bucket.last) {
        first = first.empty() ? tensor.name : first;
        last = tensor.name;
      }
    }
    names.push_back(first == last ? first : first + " to " + last);
  }
  return names;
}

}  // namespace mayfly::engine
