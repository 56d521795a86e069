#pragma once

// A barrier of processes of one host, in a shared file. All contestants of a benchmark use this
// barrier before each timed operation, so that they are not compared by their own barriers. It
// spins briefly, then yields, then sleeps: if each rank has a core, they leave it within about a
// microsecond.

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::bench {

class SharedBarrier {
 public:
  /// Maps the file at `path`, which is created if need be (mode 0600). Every process of the
  /// barrier gives the same path and size.
  static Result<SharedBarrier> open(const std::string& path, std::uint32_t size);
  SharedBarrier(SharedBarrier&& other) noexcept;
  SharedBarrier& operator=(SharedBarrier&&) = delete;
  ~SharedBarrier();

  /// Returns when all processes have called it; kDeadline if they do not.
  [[nodiscard]] Result<void> wait(Instant deadline);

 private:
  struct Shared;
  SharedBarrier(Shared* shared, std::uint32_t size);

  Shared* shared_;
  std::uint32_t size_;
  bool crowded_;  // more processes than cores
};

}  // namespace mayfly::bench
