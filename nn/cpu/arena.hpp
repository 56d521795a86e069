#pragma once

// Private to nn/cpu: the memory that a plan (nn/memory_plan.hpp) lays out.

#include <cstddef>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "nn/memory_plan.hpp"

namespace mayfly::nn::cpu {

/// The memory of a placed plan. Times in its lifetimes are positions in the step of a network with
/// U convolutions: 0 is the load of images and weights, 1 to U forward in the order of
/// convolutions_of(), U + 1 the classifier, then backward the other way around
/// (nn/cpu/resnet_engine.hpp: StepTimes).
class Arena {
 public:
  Arena() = default;
  explicit Arena(const MemoryPlan& plan);

  [[nodiscard]] void* at(TensorId tensor);
  [[nodiscard]] float* floats(TensorId tensor) { return static_cast<float*>(at(tensor)); }

 private:
  std::vector<std::size_t> offsets_;
  AlignedBuffer<std::byte> memory_;
};

}  // namespace mayfly::nn::cpu
