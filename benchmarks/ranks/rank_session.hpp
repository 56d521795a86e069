#pragma once

// What a rank process of `mayfly bench allreduce` does, whatever library it measures: it obeys the
// driver (allreduce_bench.hpp) over a control socket and, between orders, sleeps in the kernel.
//
//   rank                          driver
//   hello NAME FIXED_RANK         join RANK SIZE BARRIER_FILE       FIXED_RANK is -1 if any will do
//   address ADDRESS               peers KEY ADDRESS...              by rank
//   ready
//                                 cell BYTES TYPE ITERATIONS SALT   any number of times
//   times NS...                                                     one per iteration
//                                 quit
//
// Instead of an answer a rank may say "failed CODE TEXT" and end.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::bench {

/// The hidden command of mayfly-bench with which it is started as a rank (group_rank.hpp).
inline constexpr const char* kRankCommand = "bench-rank";

/// All-reduces in a row that make one repetition of a measurement; its time is divided by their
/// number. With a single all-reduce of a small vector the barrier would take longer than the
/// measured operation.
[[nodiscard]] constexpr std::uint32_t batch_of(std::size_t bytes) {
  return bytes <= 64 * 1024 ? 8 : 1;
}

/// One rank of the library under test. Used by one thread.
class AllReducer {
 public:
  virtual ~AllReducer() = default;
  /// The rank that the library's own launcher has given this process, if there is one.
  [[nodiscard]] virtual std::optional<std::uint32_t> fixed_rank() const { return std::nullopt; }
  /// The address at which the other ranks reach this one; one word.
  [[nodiscard]] virtual std::string address() const { return "-"; }
  /// Connects all ranks; `addresses` are by rank, `key` is the same on all.
  [[nodiscard]] virtual Result<void> connect(std::uint32_t rank, std::uint64_t key,
                                             const std::vector<std::string>& addresses) = 0;
  /// Sums in place and returns when the result is complete.
  [[nodiscard]] virtual Result<void> sum(void* data, std::size_t count,
                                         collectives::DataType type) = 0;
};

/// How a rank process reaches its driver; from its command line.
struct RankOptions {
  std::string control;  ///< path of the driver's socket; scratch files may lie beside it
  std::string name;     ///< of the contestant, as the driver knows it
};

/// Reads `--control PATH --name NAME` from the words of a rank process's command line.
[[nodiscard]] Result<RankOptions> parse_rank_options(const std::vector<std::string>& words);

/// Serves the driver until the driver ends it or has ended, and returns the process's exit code. If
/// an order takes minutes, the process is ended (SIGALRM), so that a library that hangs leaves no
/// process behind.
int serve_rank(const RankOptions& options, AllReducer& reducer);

/// Tells the driver that this rank cannot run, and why; returns the exit code.
int refuse_rank(const RankOptions& options, const Error& error);

}  // namespace mayfly::bench
