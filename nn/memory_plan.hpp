#pragma once

// One block of memory for all tensors of a step, laid out before the first step. Each tensor has a
// lifetime, and tensors whose lifetimes do not overlap may share addresses. For example, gradients
// of early layers use the memory of late layers' activations. On a CPU a step then fits into the
// caches, on a GPU a larger microbatch fits into memory. The plan is pure.

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"

namespace mayfly::nn {

/// A tensor's place in the plan; kNoTensor where there is none.
enum class TensorId : std::size_t {};
inline constexpr TensorId kNoTensor{static_cast<std::size_t>(-1)};

/// A range of positions in a step, both ends included. The author of the plan defines the
/// positions.
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

/// The layout of the block: each tensor begins at a multiple of `alignment` and is followed by
/// `stagger` unused bytes (a multiple of the alignment).
struct Placement {
  std::size_t alignment = 64;
  std::size_t stagger = 0;
};

/// For CPUs. Sizes of tensors are often powers of two; the unused cache lines keep tensors from
/// beginning at equal addresses modulo 4 KiB, because the CPU then treats loads as dependent on
/// earlier stores (4K aliasing).
inline constexpr Placement kCpuPlacement{.alignment = 64, .stagger = 5 * 64};

/// For GPUs: the alignment of the CUDA runtime's own allocations.
inline constexpr Placement kGpuPlacement{.alignment = 256, .stagger = 0};

class MemoryPlan {
 public:
  MemoryPlan() = default;
  explicit MemoryPlan(const Placement& placement) : placement_(placement) {}

  /// Adds a tensor of `bytes` that is needed during `life`; place() assigns its offset.
  TensorId add(std::string name, std::size_t bytes, Lifetime lifetime);
  TensorId add_floats(std::string name, std::size_t count, Lifetime lifetime) {
    return add(std::move(name), count * sizeof(float), lifetime);
  }

  /// Assigns an offset to every tensor: the largest first, each at the lowest address that no
  /// tensor with an overlapping lifetime uses.
  void place();

  [[nodiscard]] const std::vector<PlannedTensor>& tensors() const { return tensors_; }
  /// Bytes of the whole block.
  [[nodiscard]] std::size_t total() const { return total_; }

 private:
  Placement placement_ = kCpuPlacement;
  std::vector<PlannedTensor> tensors_;
  std::size_t total_ = 0;
};

/// The host cannot hold an arena.
struct TooLittleMemory : std::bad_alloc {
  std::uint64_t needed = 0;  ///< bytes
  std::uint64_t usable = 0;
};

/// The memory of a placed plan on the host, zeroed at first.
class Arena {
 public:
  Arena() = default;
  /// Throws TooLittleMemory before it allocates anything: otherwise the kernel would kill the
  /// process later, without a message.
  explicit Arena(const MemoryPlan& plan);

  [[nodiscard]] void* at(TensorId tensor);
  [[nodiscard]] float* floats(TensorId tensor) { return static_cast<float*>(at(tensor)); }

 private:
  std::vector<std::size_t> offsets_;
  AlignedBuffer<std::byte> memory_;
};

}  // namespace mayfly::nn
