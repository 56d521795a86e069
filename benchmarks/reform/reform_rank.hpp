#pragma once

// A member of `mayfly bench reform` as a process of its own.
//
//   member                                 driver
//   hello NAME -1
//   address ADDRESS                        view VIEW RANK KEY MEMBER ADDRESS [MEMBER ADDRESS]...
//   sum VIEW HEARD STOPPED FORMED DONE     any number of times, each ends the view before it
//                                          quit
//
// HEARD and so on are instants of the host's monotonic clock in nanoseconds: the order was
// received, the old view's group had ended, the new one was formed, its first sum was found right.
// After that the member runs all-reduces without pause until the next order. "failed TEXT" instead
// of "sum": the view could not be formed, or a sum was wrong.

#include <cstddef>
#include <string>

#include "benchmarks/ranks/rank_session.hpp"

namespace mayfly::bench {

/// Vector of each all-reduce of the benchmark.
inline constexpr std::size_t kReformBytes = 64 * 1024;

/// Runs a member over this transport (make_bench_transport) until the driver ends it; returns the
/// process's exit code.
int run_reform_rank(const std::string& backend, const RankOptions& options);

}  // namespace mayfly::bench
