#pragma once

// Private to nn/cuda: the tensors of a step plan while it is made. One lives from the first to the
// last operation that names it, or, resident, as long as the engine. Pure.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "nn/memory_plan.hpp"

namespace mayfly::nn::cuda {

class TensorList {
 public:
  TensorId add(std::string name, std::size_t bytes);
  TensorId add_resident(std::string name, std::size_t bytes);
  /// Operation `now` uses it; not before the one that was noted last. Nothing for kNoTensor.
  void note_use(TensorId id, std::size_t now);
  /// Gives every tensor its place in `memory`; `end` operations there are. Every one was used.
  void place(std::size_t end, MemoryPlan& memory);

 private:
  struct Tensor {
    std::string name;
    std::size_t bytes = 0;
    bool resident = false;
    std::optional<Lifetime> use;
  };

  std::vector<Tensor> tensors_;
};

}  // namespace mayfly::nn::cuda
