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

/// `mayfly bench reform`: rank processes that run all-reduces without pause form a view; one is
/// killed, the survivors are told at once, as a coordinator would, to abort and to form the next
/// view, and the first all-reduce of 64 KiB there is checked. Measured from just before the first
/// survivor is told to when the last one has reported the right sum, on the driver's clock; also
/// for a planned change (the same without a kill). The killed one is replaced between trials.
/// Returns an exit code: 1 if a sum was wrong or a member did not come through.
int bench_reform(const ReformBenchOptions& options);

}  // namespace mayfly::bench
