#pragma once

// Intervals between checkpoints that need no simulation. Times in seconds. Pure; any thread.

namespace mayfly::planner {

/// Checkpoint interval by Young, Communications of the ACM 17 (1974), page 530: sqrt(2 C M), for
/// the cost of a checkpoint and the mean time to a loss that needs it.
[[nodiscard]] double young_interval(double checkpoint_s, double mean_to_loss_s);
/// By Daly, Future Generation Computer Systems 22 (2006), equation 37; `mean_to_loss_s` if a
/// checkpoint costs more than twice of that.
[[nodiscard]] double daly_interval(double checkpoint_s, double mean_to_loss_s);

}  // namespace mayfly::planner
