#pragma once

#include <cstdint>

namespace mayfly::bench {

struct PlanBenchOptions {
  std::uint32_t rounds = 5;
  bool json = false;  ///< JSON lines instead of a table
};

/// `mayfly bench plan`: how long the planner takes on one thread, on an invented market: for 10,000
/// paths of 16 servers over 24 hours, for as many hours with the replacement policy itself (100
/// paths), and for a question with 500 candidates.
int bench_plan(const PlanBenchOptions& options);

}  // namespace mayfly::bench
