#include "planner/simulation/closed_forms.hpp"

#include <cmath>

namespace mayfly::planner {

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
