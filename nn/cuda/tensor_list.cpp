#include "nn/cuda/tensor_list.hpp"

#include <utility>

#include "base/check.hpp"

namespace mayfly::nn::cuda {

TensorId TensorList::add(std::string name, std::size_t bytes) {
  tensors_.push_back({std::move(name), bytes, false, {}});
  return static_cast<TensorId>(tensors_.size() - 1);
}

TensorId TensorList::add_resident(std::string name, std::size_t bytes) {
  const TensorId id = add(std::move(name), bytes);
  tensors_.back().resident = true;
  return id;
}

void TensorList::note_use(TensorId id, std::size_t now) {
  if (id != kNoTensor) {
    const int at = static_cast<int>(now);
    std::optional<Lifetime>& use = tensors_[static_cast<std::size_t>(id)].use;
    use = {use.has_value() ? use->first : at, at};
  }
}

void TensorList::place(std::size_t end, MemoryPlan& memory) {
  for (Tensor& tensor : tensors_) {
    ENSURE(tensor.resident || tensor.use.has_value(), "every tensor is needed by somebody");
    memory.add(std::move(tensor.name), tensor.bytes,
               tensor.resident ? Lifetime{0, static_cast<int>(end)} : *tensor.use);
  }
  memory.place();
}

}  // namespace mayfly::nn::cuda
