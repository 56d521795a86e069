#pragma once

// The earliest of many instants, each at a position: a tree of minima, in which a change and a
// query cost O(log positions). Pure; one thread.

#include <cstddef>
#include <optional>
#include <vector>

#include "planner/distributions.hpp"

namespace mayfly::planner {

class Earliest {
 public:
  /// All positions are kNever again.
  void clear();
  void set(std::size_t position, double at_s);
  /// The earliest instant; kNever if all are.
  [[nodiscard]] double first_s() const { return positions_ == 0 ? kNever : least_[1]; }
  /// The position with the earliest instant, the lowest one of equals; nothing if all are kNever.
  [[nodiscard]] std::optional<std::size_t> first() const;

 private:
  void grow(std::size_t positions);

  std::size_t positions_ = 0;  // a power of two, or 0
  std::vector<double> least_;  // of nodes 2n and 2n + 1 at node n; the positions come last
};

}  // namespace mayfly::planner
