#pragma once

#include <cstdint>
#include <string>

namespace mayfly::bench {

struct ReformBenchOptions {
  std::uint32_t ranks = 8;       ///< members of the view before each kill; 2 to 64
  std::string backend = "unix";  ///< tcp, unix or gloo
  std::uint32_t kills = 50;
  bool json = false;  ///< one JSON object per trial and one per kind
};

/// `mayfly bench reform`: rank processes that run all-reduces without pause form a view. One is
/// killed, and the survivors are told at once, as a coordinator would tell them, to abort and to
/// form the next view, in which the first all-reduce of 64 KiB is checked. Measured on the driver's
/// clock, from just before the first survivor is told until the last one has reported the right
/// sum; also for a planned change (the same without a kill). The killed process is replaced between
/// trials. Returns an exit code: 1 if a sum was wrong or a member failed.
int bench_reform(const ReformBenchOptions& options);

}  // namespace mayfly::bench
