#include "nn/memory_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.hpp"
#include "base/usable_memory.hpp"

namespace mayfly::nn {
namespace {

AlignedBuffer<std::byte> taken_memory(std::size_t bytes) {
  const MemoryClaim claim(bytes);
  if (!claim.fits()) {
    TooLittleMemory error;
    error.needed = bytes;
    error.usable = claim.usable();
    throw error;
  }
  return AlignedBuffer<std::byte>(bytes);
}

}  // namespace

TensorId MemoryPlan::add(std::string name, std::size_t bytes, Lifetime lifetime) {
  ENSURE(total_ == 0, "all tensors are known before they are placed");
  ENSURE(lifetime.first <= lifetime.last, "a lifetime begins before it ends");
  const std::size_t lines = (bytes + placement_.alignment - 1) / placement_.alignment;
  tensors_.push_back(
      {std::move(name), lines * placement_.alignment + placement_.stagger, lifetime, 0});
  return static_cast<TensorId>(tensors_.size() - 1);
}

void MemoryPlan::place() {
  std::vector<std::size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensors_[a].bytes > tensors_[b].bytes;
  });
  std::vector<const PlannedTensor*> placed;  // by offset
  for (const std::size_t index : order) {
    PlannedTensor& tensor = tensors_[index];
    for (const PlannedTensor* other : placed) {
      if (!other->lifetime.overlaps(tensor.lifetime)) {
        continue;
      }
      if (tensor.offset + tensor.bytes <= other->offset) {
        break;  // it fits into the gap before this one
      }
      tensor.offset = std::max(tensor.offset, other->offset + other->bytes);
    }
    total_ = std::max(total_, tensor.offset + tensor.bytes);
    const auto by_offset = [](const PlannedTensor* a, const PlannedTensor* b) {
      return a->offset < b->offset;
    };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &tensor, by_offset), &tensor);
  }
}

Arena::Arena(const MemoryPlan& plan) : memory_(taken_memory(plan.total())) {
  ENSURE(plan.total() != 0, "a plan is placed before its memory is allocated");
  for (const PlannedTensor& tensor : plan.tensors()) {
    offsets_.push_back(tensor.offset);
  }
}

void* Arena::at(TensorId tensor) {
  const auto index = static_cast<std::size_t>(tensor);
  ENSURE(index < offsets_.size(), "the tensor was planned");
  return memory_.data() + offsets_[index];
}

}  // namespace mayfly::nn
