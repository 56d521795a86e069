#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mayfly::bench {

struct PsBenchOptions {
  std::vector<std::size_t> sizes = {2U << 20U, 100U << 20U};  ///< bytes of the parameters
  std::uint32_t workers = 2;
  std::uint32_t shards = 1;
  std::uint32_t rounds = 5;  ///< of each contestant, in turn
  double gigabytes = 2;  ///< transferred by each contestant in a round, in both directions together
  bool json = false;     ///< one JSON object per measurement, and one per size
};

/// `mayfly bench ps`: pushes of gradients whose answers contain the parameters, as in training
/// (asp: an update with momentum for each push), compared with blocking loops that only transfer
/// the same bytes over the same kind of connections. Reports CPU seconds of all threads per GB, and
/// GB per second. Then the cost of a switch between bsp and asp: the time between the last update
/// before and the first one after it. All runs in this process, over Unix-domain sockets; Mayfly
/// also with memory shared between worker and shard, as usual if the system provides it. Returns an
/// exit code.
int bench_ps(const PsBenchOptions& options);

}  // namespace mayfly::bench
