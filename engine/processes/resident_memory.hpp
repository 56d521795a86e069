#pragma once

// Memory that a worker holds for nothing, so that benchmarks of recovery kill processes of a
// realistic size: the kernel frees a dead process's memory before it closes its sockets.

#include <cstddef>
#include <memory>

#include "base/result.hpp"

namespace mayfly::engine {

class ResidentMemory {
 public:
  /// Touches so much, in pages of 4 KiB, which take the longest to free. kIo if there is none.
  static Result<std::unique_ptr<ResidentMemory>> touch(std::size_t bytes);
  ~ResidentMemory();
  ResidentMemory(const ResidentMemory&) = delete;
  ResidentMemory& operator=(const ResidentMemory&) = delete;

 private:
  ResidentMemory(void* memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}

  void* memory_;
  std::size_t bytes_;
};

}  // namespace mayfly::engine
