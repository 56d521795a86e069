#pragma once

// One block of memory for everything a step touches, laid out before the first step. Each tensor
// says from when to when it is needed; tensors that are never needed at the same time may share
// addresses. So the gradients of the early layers lie where the late layers' activations were,
// which keeps the step small enough for the caches.

#include <cstddef>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"

namespace mayfly::nn::cpu {

/// A tensor's place in the plan; kNoTensor where there is none.
enum class TensorId : std::size_t {};
inline constexpr TensorId kNoTensor{static_cast<std::size_t>(-1)};

/// Both ends belong to it. Times are positions in the step of a network with U convolutions: 0 is
/// the load of images and weights, 1 to U forward in the order of convolutions_of(), U + 1 the
/// classifier, then backward the other way around (resnet_engine.hpp: StepTimes).
struct Lifetime {
  int first = 0;
  int last = 0;

  [[nodiscard]] bool overlaps(const Lifetime& other) const {
    return first <= other.last && other.first <= last;
  }
};

struct PlannedTensor {
  std::string name;
  std::size_t bytes = 0;
  Lifetime lifetime;
  std::size_t offset = 0;  ///< set by place()
};

class MemoryPlan {
 public:
  /// Asks for `bytes`, aligned to a cache line.
  TensorId add(std::string name, std::size_t bytes, Lifetime lifetime);
  TensorId add_floats(std::string name, std::size_t count, Lifetime lifetime) {
    return add(std::move(name), count * sizeof(float), lifetime);
  }

  /// Gives every tensor its place: the largest first, each at the lowest address where no tensor of
  /// an overlapping lifetime lies.
  void place();

  [[nodiscard]] const std::vector<PlannedTensor>& tensors() const { return tensors_; }
  /// Bytes of the whole block.
  [[nodiscard]] std::size_t total() const { return total_; }

 private:
  std::vector<PlannedTensor> tensors_;
  std::size_t total_ = 0;
};

/// The memory of a placed plan.
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
