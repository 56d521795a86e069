#include "nn/cpu/arena.hpp"

#include "base/check.hpp"

namespace mayfly::nn::cpu {

Arena::Arena(const MemoryPlan& plan) : memory_(plan.total()) {
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

}  // namespace mayfly::nn::cpu
