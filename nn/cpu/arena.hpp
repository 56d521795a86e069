#pragma once

// One block of memory for everything a step touches, laid out before the first step. Reserve all
// slots, allocate once, then ask for addresses.

#include <cstddef>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/check.hpp"

namespace mayfly::nn::cpu {

class Arena {
 public:
  enum class Slot : std::size_t {};

  /// Plans `bytes`, aligned to a cache line.
  Slot reserve(std::size_t bytes) {
    ENSURE(memory_.size() == 0, "all slots are reserved before the arena is allocated");
    offsets_.push_back(total_);
    // The extra lines keep tensors, whose sizes are powers of two, from starting at equal
    // addresses modulo 4 KiB, where loads are mistaken for depending on earlier stores.
    constexpr std::size_t kStagger = 5 * kLine;
    total_ += (bytes + kLine - 1) / kLine * kLine + kStagger;
    return static_cast<Slot>(offsets_.size() - 1);
  }
  Slot reserve_floats(std::size_t count) { return reserve(count * sizeof(float)); }

  void allocate() { memory_ = AlignedBuffer<std::byte>(total_); }

  [[nodiscard]] void* at(Slot slot) {
    ENSURE(memory_.size() != 0, "the arena is allocated before addresses are asked for");
    return memory_.data() + offsets_[static_cast<std::size_t>(slot)];
  }
  [[nodiscard]] float* floats(Slot slot) { return static_cast<float*>(at(slot)); }
  [[nodiscard]] std::size_t bytes() const { return total_; }

 private:
  static constexpr std::size_t kLine = 64;
  std::vector<std::size_t> offsets_;
  std::size_t total_ = 0;
  AlignedBuffer<std::byte> memory_;
};

}  // namespace mayfly::nn::cpu
