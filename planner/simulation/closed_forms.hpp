#pragma once

// What can be said of a job without simulation: bounds for pruning candidates, and values that the
// simulation must agree with where their assumptions hold. Times in seconds. Pure; any thread.

#include <span>

#include "planner/distributions.hpp"

namespace mayfly::planner {

/// The chance that none of these servers is lost by `until_s`: the product of their survivals, if
/// losses are independent.
[[nodiscard]] double none_lost(std::span<const LifetimeTable> servers, double until_s);
/// Expected losses by `until_s` if no server is replaced: the sum of 1 - survival.
[[nodiscard]] double losses_unreplaced(std::span<const LifetimeTable> servers, double until_s);
/// Expected losses of one place by `until_s` if each server is replaced after `down_s`: the renewal
/// function, by steps of `step_s` (its error is of that order).
[[nodiscard]] double losses_replaced(const LifetimeTable& server, double down_s, double until_s,
                                     double step_s);
/// Share of the time that a place has a working server, in the long run: mean time up over mean
/// time up and down. 1 if servers live for ever.
[[nodiscard]] double availability(const LifetimeTable& server, double down_s);
/// Checkpoint interval by Young, Communications of the ACM 17 (1974), page 530: sqrt(2 C M), for
/// the cost of a checkpoint and the mean time to a loss that needs it.
[[nodiscard]] double young_interval(double checkpoint_s, double mean_to_loss_s);
/// By Daly, Future Generation Computer Systems 22 (2006), equation 37; `mean_to_loss_s` if a
/// checkpoint costs more than twice of that.
[[nodiscard]] double daly_interval(double checkpoint_s, double mean_to_loss_s);

}  // namespace mayfly::planner
