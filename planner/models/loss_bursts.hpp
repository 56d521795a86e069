#pragma once

// Losses that occur together: in a batch of servers that started at the same time, each hour has a
// shock with some probability, and a shock takes some share of the live servers. Pure; any thread.

#include <span>

#include "planner/calibration/calibration.hpp"
#include "planner/fit.hpp"

namespace mayfly::planner {

struct LossBursts {
  double shocks_per_hour = 0;
  double share_taken = 0;
  double share_of_losses = 0;  ///< taken by shocks
  double batches = 0;          ///< that were evaluated
};

/// Losses of a batch within two minutes of each other are attributed to one shock, as far as there
/// are more of them than independent losses would explain. `hazards` are those of single servers
/// per hour of age; only their shape matters, as each batch has a level of its own.
///
/// The time between two losses has a mixture of two densities: that of independent losses among the
/// live servers, and a uniform one over the two minutes after a loss by a shock. Its weights are
/// found by expectation maximisation (Dempster, Laird and Rubin, 1977).
[[nodiscard]] LossBursts measure_bursts(std::span<const LifetimeServerRow> servers,
                                        const Numbers& hazards);

}  // namespace mayfly::planner
