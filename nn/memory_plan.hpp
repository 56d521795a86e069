#pragma once

// One block of memory for everything a step touches, laid out before the first step. Each tensor
// says from when to when it is needed; tensors that are never needed at the same time may share
// addresses. So the gradients of the early layers lie where the late layers' activations were:
// on a CPU the step stays small enough for the caches, on a GPU a larger microbatch fits. Pure.

#include <cstddef>
#include <string>
#include <vector>

namespace mayfly::nn {

/// A tensor's place in the plan; kNoTensor where there is none.
enum class TensorId : std::size_t {};
inline constexpr TensorId kNoTensor{static_cast<std::size_t>(-1)};

/// Positions in a step, as whoever makes the plan counts them. Both ends belong to it.
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

/// How tensors lie in the block: each at a multiple of `alignment`, with `stagger` bytes behind it
/// that nobody uses (a multiple of the alignment).
struct Placement {
  std::size_t alignment = 64;
  std::size_t stagger = 0;
};

/// Of a CPU. Tensors' sizes are powers of two: extra lines keep them from starting at equal
/// addresses modulo 4 KiB, where loads are mistaken for depending on earlier stores.
inline constexpr Placement kCpuPlacement{.alignment = 64, .stagger = 5 * 64};

/// Of a GPU: what the CUDA runtime's own allocations are aligned to.
inline constexpr Placement kGpuPlacement{.alignment = 256, .stagger = 0};

class MemoryPlan {
 public:
  MemoryPlan() = default;
  explicit MemoryPlan(const Placement& placement) : placement_(placement) {}

  /// Asks for `bytes`.
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
  Placement placement_ = kCpuPlacement;
  std::vector<PlannedTensor> tensors_;
  std::size_t total_ = 0;
};

}  // namespace mayfly::nn
