#include "planner/runs/remaining.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/statistics.hpp"
#include "base/time.hpp"
#include "planner/estimate.hpp"
#include "planner/fit.hpp"

namespace mayfly::planner {
namespace {

constexpr std::size_t kWindowsLeast = 3;  // for an estimate of the spread of the speed
constexpr double kUnknownSpread = 0.1;    // of the speeds of fewer windows
constexpr double kErrorLeast = 1e-3;      // of a measured speed
constexpr int kRounds = 30;               // until losses and remaining time are consistent

double square(double x) {
  return x * x;
}

/// The logarithm of the speed for the rest of the job.
struct RestSpeed {
  double log_median = 0;
  double log_sd = 0;     // of its level
  double window_sd = 0;  // of one window around this level
  double deviations = kHalfOf90;
};

/// Combines the plan's speed and the measured one, weighted by their precision. If their difference
/// exceeds the plan's spread, that spread is enlarged to the difference.
RestSpeed combined(RestSpeed measured, double planned_log, double planned_sd) {
  const double apart = square(measured.log_median - planned_log);
  const double of_plan =
      square(kErrorLeast) + std::max(square(planned_sd), apart - square(measured.log_sd));
  const double of_run = square(measured.log_sd);
  measured.log_median = (planned_log * of_run + measured.log_median * of_plan) / (of_run + of_plan);
  measured.log_sd = std::sqrt(of_plan * of_run / (of_plan + of_run));
  measured.deviations = kHalfOf90;
  return measured;
}

Result<RestSpeed> speed_of_rest(const RestOfJob& rest, const KeptPlan* plan) {
  const std::size_t windows = rest.window_speeds.size();
  const double planned = plan != nullptr ? plan->speed(rest.machine, rest.members) : 0;
  if (windows < (planned > 0 ? 1 : kWindowsLeast)) {
    if (planned > 0) {
      return RestSpeed{std::log(planned), plan->speed_log_sd, 0};
    }
    return Error{Errc::kNotFound, "too few steps are on record yet"};
  }
  Numbers logs;
  for (const double speed : rest.window_speeds) {
    logs.push_back(std::log(speed));
  }
  RestSpeed speed;
  speed.log_median = median(logs);
  speed.window_sd = windows < kWindowsLeast ? kUnknownSpread : deviation_of(logs);
  speed.log_sd = std::max(kErrorLeast, speed.window_sd / std::sqrt(static_cast<double>(windows)));
  if (planned > 0) {
    return combined(speed, std::log(planned), plan->speed_log_sd);
  }
  speed.deviations = student_quantile(0.95, static_cast<double>(windows - 1));
  return speed;
}

/// The number of losses, and the time that they add in seconds.
struct Delays {
  double losses = 0;
  double mean_s = 0;
  double variance = 0;
};

Delays delays_within(const RestOfJob& rest, const KeptPlan& plan, double seconds) {
  Delays delays;
  double by_hazard = 0;
  const double all = plan.speed(rest.machine, rest.members_soon);
  for (const PresentServer& server : rest.servers) {
    const PlannedOffer* offer = plan.find_offer(server.offer);
    if (offer == nullptr) {
      continue;
    }
    const double lacking = 1 - plan.speed(rest.machine, rest.members_soon - 1) / all;
    const double redone = rest.members_soon > 1 ? 0 : plan.checkpoint_every_s / 2;
    const double each = plan.recovery_s + offer->start_s.median * lacking + redone;
    const double losses = expected_losses(*offer, server.age_s, seconds);
    delays.losses += losses;
    delays.mean_s += losses * each;
    delays.variance += losses * square(each);
    by_hazard += losses * each * offer->hazard_log_sd;
  }
  delays.variance += square(by_hazard);
  return delays;
}

/// The squared distances of the bounds of the central 90 % from the median.
struct Spreads {
  double below = 0, above = 0;
};

/// The spreads of the plan's simulated jobs without the part of their different speeds, in
/// proportion to the steps that are left, because the disturbances of two parts of a job are
/// independent.
Spreads spreads_of(const RestOfJob& rest, const KeptPlan& plan) {
  const PlannedRange& time = plan.time_s;
  const double level = kHalfOf90 * plan.speed_log_sd;
  const double share = std::min(1.0, rest.steps_left / plan.steps);
  const auto without_speed = [share](double all, double of_speed) {
    return share * std::max(0.0, square(all) - square(of_speed));
  };
  return {without_speed(time.median - time.low, time.median * (1 - std::exp(-level))),
          without_speed(time.high - time.median, time.median * (std::exp(level) - 1))};
}

/// The time that is lost until the missing members have joined, because the others are slower.
double waiting_s(const RestOfJob& rest, const KeptPlan& plan) {
  if (rest.members_soon <= rest.members || plan.offers.empty()) {
    return 0;
  }
  return plan.offers.front().start_s.median *
         (1 - plan.speed(rest.machine, rest.members) / plan.speed(rest.machine, rest.members_soon));
}

std::string reason_of(const RestOfJob& rest, const KeptPlan* plan) {
  std::string text = rest.window_speeds.empty()
                         ? "no measured speed"
                         : fmt::format("the speed of {} parts of {:.0f} steps with {} {}",
                                       rest.window_speeds.size(), rest.window_steps, rest.members,
                                       rest.members == 1 ? "member" : "members");
  if (plan == nullptr) {
    return text + "; no plan: further losses are not expected";
  }
  return text + "; the plan " + plan->plan + " of " + plan->rests_on;
}

}  // namespace

double expected_losses(const PlannedOffer& offer, double age_s, double seconds) {
  const LifetimeTable lifetime = offer.lifetime();
  const double by_shocks = offer.shocks_per_s * seconds;
  if (!offer.cap_s) {
    return by_shocks + lifetime.hazard(age_s + seconds) - lifetime.hazard(age_s);
  }
  const double cap = *offer.cap_s;
  const double age = std::min(age_s, cap);
  if (age + seconds < cap) {
    return by_shocks + lifetime.hazard(age + seconds) - lifetime.hazard(age);
  }
  const double later = seconds - (cap - age);
  const double rounds = std::floor(later / cap);
  return by_shocks + lifetime.hazard(cap) - lifetime.hazard(age) + 1 +
         rounds * (lifetime.hazard(cap) + 1) + lifetime.hazard(later - rounds * cap);
}

double up_share(const PlannedOffer& offer, double age_s) {
  const double losses = expected_losses(offer, age_s, kSecondsPerHour);
  return 1 / (1 + losses * offer.start_s.median / kSecondsPerHour);
}

Result<Remaining> remaining(const RestOfJob& rest, const KeptPlan* plan) {
  Remaining left;
  if (rest.price_per_hour) {
    left.cost = PlannedRange();
  }
  if (rest.steps_left <= 0) {
    left.rests_on = "no step is left";
    return left;
  }
  const Result<RestSpeed> found = speed_of_rest(rest, plan);
  if (!found.ok()) {
    return found.error();
  }
  const RestSpeed& speed = found.value();
  double base = rest.steps_left / std::exp(speed.log_median);
  double median = base;
  Delays delays;
  if (plan != nullptr && rest.members > 0) {
    base *= plan->speed(rest.machine, rest.members) / plan->speed(rest.machine, rest.members_soon);
    const double waiting = waiting_s(rest, *plan);
    median = base + waiting;
    for (int round = 0; round < kRounds; ++round) {
      delays = delays_within(rest, *plan, median);
      median = base + waiting + delays.mean_s;
    }
  }
  const double windows_left = rest.steps_left / std::max(1.0, rest.window_steps);
  const double of_windows = square(speed.deviations * base * speed.window_sd) / windows_left;
  const double of_losses = square(speed.deviations) * delays.variance;
  const double level = speed.deviations * speed.log_sd;
  const auto half = [&](double of_level, double planned) {
    return std::sqrt(square(of_level) + of_windows + std::max(of_losses, planned));
  };
  const Spreads planned = plan == nullptr ? Spreads() : spreads_of(rest, *plan);
  left.time_s = {std::max(0.0, median - half(base * (1 - std::exp(-level)), planned.below)), median,
                 median + half(base * (std::exp(level) - 1), planned.above)};
  left.losses = delays.losses;
  left.rests_on = reason_of(rest, plan);
  if (rest.price_per_hour) {
    const double per_s = *rest.price_per_hour / kSecondsPerHour;
    left.cost =
        PlannedRange{left.time_s.low * per_s, left.time_s.median * per_s, left.time_s.high * per_s};
  }
  return left;
}

}  // namespace mayfly::planner
