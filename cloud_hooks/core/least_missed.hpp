#pragma once

// Which servers a job misses least when it has to give up some of them: the others then do the
// rest of the job for the least money, and among choices of the same price no speed is lost
// needlessly. Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mayfly::cloud_hooks {

struct ServerWorth {
  double speed = 1;           ///< of its worker, in microbatches per any one unit of time; above 0
  double up_share = 1;        ///< of the time to come in which it, or its replacement, works
  double price_per_hour = 0;  ///< not negative
  bool may_go = true;         ///< otherwise it only counts among those that stay
  bool is_on_demand = false;
  std::uint32_t order = 0;  ///< younger servers have higher ones
};

struct GiveUp {
  std::size_t count = 0;           ///< servers to give up; fewer if not so many may go
  std::size_t on_demand_most = 0;  ///< of these, on demand
  /// Microbatches of a step, each of which is given to one worker; 0 = unknown. A worker with
  /// several threads counts as if they computed one microbatch after the other together.
  std::uint32_t microbatches = 0;
};

/// The speed of these servers together, in the unit of theirs: that of a step whose whole
/// microbatches are shared out so that it takes the least time, times the share of it that is up.
[[nodiscard]] double speed_together(const std::vector<ServerWorth>& servers,
                                    std::uint32_t microbatches);

/// The places, in `servers`, of those that are given up, newest first. The others cost least for
/// their speed; if choices are equal in that, those that stay are faster, then the newest go. It is
/// exact as long as there are few choices (20,000). With more, microbatches are taken as divisible.
[[nodiscard]] std::vector<std::size_t> least_missed(const std::vector<ServerWorth>& servers,
                                                    const GiveUp& wanted);

}  // namespace mayfly::cloud_hooks
