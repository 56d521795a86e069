#pragma once

// What if: the same market and job with other prices, hazards, start-up times or recovery. Pure;
// any thread.

#include <optional>

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

struct Scenario {
  double price_factor = 1;
  double hazard_factor = 1;  ///< on single losses and on shocks
  double start_up_factor = 1;
  std::optional<double> start_up_s;  ///< instead of the start-up times of all offers
  std::optional<double> recovery_s;  ///< for which all workers stand still after a loss

  [[nodiscard]] bool changes_anything() const {
    return price_factor != 1 || hazard_factor != 1 || start_up_factor != 1 || start_up_s ||
           recovery_s;
  }
};

[[nodiscard]] Market changed(const Market& market, const Scenario& scenario);
[[nodiscard]] JobModel changed(const JobModel& job, const Scenario& scenario);

}  // namespace mayfly::planner
