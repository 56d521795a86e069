#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mayfly::bench {

struct PsBenchOptions {
  std::vector<std::size_t> sizes = {2U << 20U, 100U << 20U};  ///< bytes of the parameters
  std::uint32_t workers = 2;
  std::uint32_t shards = 1;
  std::uint32_t rounds = 5;  ///< of every contestant, in turn
  double gigabytes = 2;      ///< moved by each contestant in a round, both ways together
  bool json = false;         ///< one JSON object per measurement, and one per size
};

/// `mayfly bench ps`: pushes of gradients that bring the parameters back, as in training (asp: an
/// update with momentum for each push), beside blocking loops that move the same bytes over the
/// same kind of connections and do nothing with them; CPU seconds of all threads per GB, GB per
/// second. Then what a switch between bsp and asp costs: the time between the last update before
/// and the first one after it. All in this process, over Unix-domain sockets; ours also with memory
/// shared between worker and shard, as it is unless the system gives none. Returns an exit code.
int bench_ps(const PsBenchOptions& options);

}  // namespace mayfly::bench
