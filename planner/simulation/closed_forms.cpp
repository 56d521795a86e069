#include "planner/simulation/closed_forms.hpp"

#include <cmath>
#include <vector>

#include "base/check.hpp"

namespace mayfly::planner {

double none_lost(std::span<const LifetimeTable> servers, double until_s) {
  double chance = 1;
  for (const LifetimeTable& server : servers) {
    chance *= server.survival(until_s);
  }
  return chance;
}

double losses_unreplaced(std::span<const LifetimeTable> servers, double until_s) {
  double sum = 0;
  for (const LifetimeTable& server : servers) {
    sum += 1 - server.survival(until_s);
  }
  return sum;
}

double losses_replaced(const LifetimeTable& server, double down_s, double until_s, double step_s) {
  // m(t) = F(t) + integral over dF(a) of m(t - a - down).
  ENSURE(step_s > 0, "the steps are above 0");
  const auto steps = static_cast<std::size_t>(std::ceil(until_s / step_s));
  const auto down = static_cast<std::size_t>(std::llround(down_s / step_s));
  std::vector<double> lost(steps + 1, 0);  // F at the steps
  std::vector<double> mean(steps + 1, 0);
  for (std::size_t t = 1; t <= steps; ++t) {
    lost[t] = 1 - server.survival(static_cast<double>(t) * step_s);
    mean[t] = lost[t];
    for (std::size_t age = 1; age + down < t; ++age) {
      mean[t] += (lost[age] - lost[age - 1]) * mean[t - age - down];
    }
  }
  return mean[steps];
}

double availability(const LifetimeTable& server, double down_s) {
  const double up = server.mean();
  return up == kNever ? 1 : up / (up + down_s);
}

double young_interval(double checkpoint_s, double mean_to_loss_s) {
  return std::sqrt(2 * checkpoint_s * mean_to_loss_s);
}

double daly_interval(double checkpoint_s, double mean_to_loss_s) {
  if (checkpoint_s >= 2 * mean_to_loss_s) {
    return mean_to_loss_s;
  }
  const double ratio = checkpoint_s / (2 * mean_to_loss_s);
  return young_interval(checkpoint_s, mean_to_loss_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         checkpoint_s;
}

}  // namespace mayfly::planner
