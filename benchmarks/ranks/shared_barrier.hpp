#pragma once

// A barrier of processes of one host in a shared file. All contestants of a benchmark use the same
// one before each timed operation, so that none is judged by its own barrier. It spins briefly,
// then yields, then sleeps: the ranks leave it within a microsecond or so where each has a core.

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

  /// Returns when all have called it; kDeadline if they do not.
  [[nodiscard]] Result<void> wait(Instant deadline);

 private:
  struct Shared;
  SharedBarrier(Shared* shared, std::uint32_t size);

  Shared* shared_;
  std::uint32_t size_;
  bool crowded_;  // more processes than cores
};

}  // namespace mayfly::bench
