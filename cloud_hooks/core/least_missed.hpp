#pragma once

// Chooses the servers that a job misses least when it has to give up some of them: the servers that
// stay do the rest of the job for the least money, and are the fastest among choices of equal cost.
// Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mayfly::cloud_hooks {

struct ServerWorth {
  double speed = 1;           ///< of its worker, in microbatches per unit of time; above 0
  double up_share = 1;        ///< of future time in which it, or its replacement, works
  double price_per_hour = 0;  ///< not negative
  bool may_go = true;         ///< false: it always stays
  bool is_on_demand = false;
  std::uint32_t order = 0;  ///< younger servers have higher ones
};

struct GiveUp {
  std::size_t count = 0;           ///< servers to give up; fewer if not so many may go
  std::size_t on_demand_most = 0;  ///< the most on-demand servers among them
  /// Microbatches of a step, each of which is given to one worker; 0 = unknown. The threads of a
  /// worker count as if they computed one microbatch after the other together.
  std::uint32_t microbatches = 0;
};

/// The combined speed of these servers, in the unit of their speeds: that of a step whose
/// microbatches are distributed whole, so that it takes the least time, times the share of the
/// servers' speed that is up.
[[nodiscard]] double speed_together(const std::vector<ServerWorth>& servers,
                                    std::uint32_t microbatches);

/// Returns the indices in `servers` of those to give up, newest first. The servers that stay cost
/// least for their speed; among equal choices the fastest servers stay, then the oldest. The result
/// is exact for up to 20,000 choices; with more, microbatches are taken as divisible.
[[nodiscard]] std::vector<std::size_t> least_missed(const std::vector<ServerWorth>& servers,
                                                    const GiveUp& wanted);

}  // namespace mayfly::cloud_hooks
