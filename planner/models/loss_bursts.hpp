#pragma once

// Losses that come together: in a batch of servers that started at the same time, each hour has a
// shock with some probability, and a shock takes some share of those that live. Pure; any thread.

#include <span>

#include "planner/calibration/calibration.hpp"
#include "planner/fit.hpp"

namespace mayfly::planner {

struct LossBursts {
  double shocks_per_hour = 0;
  double share_taken = 0;
  double share_of_losses = 0;  ///< that shocks took
  double batches = 0;          ///< that this rests on
};

/// Losses of a batch within two minutes of each other come from one shock, as far as there are more
/// of them than losses one by one would bring so close together. `hazards` are those of single
/// servers per hour of age; only their shape matters, as each batch has a level of its own.
///
/// The time between two losses has a mixture of two densities: that of independent losses among the
/// servers that live, and an even one over the two minutes behind a loss by a shock. Its weights
/// are found by expectation maximisation (Dempster, Laird and Rubin, 1977).
[[nodiscard]] LossBursts measure_bursts(std::span<const LifetimeServerRow> servers,
                                        const Numbers& hazards);

}  // namespace mayfly::planner
