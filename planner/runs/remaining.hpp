#pragma once

// What is left of a running job: time and cost with their central 90 %, from the steps that are
// left, the speed of the run so far, and, where the job was started from a plan, its spread and its
// model of losses. Pure; any thread.

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "planner/runs/kept_plan.hpp"

namespace mayfly::planner {

/// A server that works for the job.
struct PresentServer {
  std::string offer;  ///< as PlannedOffer has it
  double age_s = 0;   ///< since it was granted
};

struct RestOfJob {
  double steps_left = 0;
  /// The run so far, cut into parts of equally many steps: the speed of each part, stops included,
  /// in steps per second of `members`.
  std::vector<double> window_speeds;
  double window_steps = 0;  ///< of each of them
  int members = 0;          ///< that compute now
  /// That will compute once the missing servers have joined; at least `members`.
  int members_soon = 0;
  std::string machine;  ///< their type; empty = unknown
  std::vector<PresentServer> servers;
  std::optional<double> price_per_hour;  ///< of all servers that are paid for now
};

struct Remaining {
  PlannedRange time_s;
  std::optional<PlannedRange> cost;  ///< at the prices that are paid now
  double losses = 0;                 ///< expected, by the plan's lifetimes; 0 without a plan
  std::string rests_on;              ///< one sentence
};

/// How many losses are expected within `seconds` of one place for a server of this offer that is
/// `age_s` old now. At the end of the longest lifetime a new server takes the place; after another
/// loss the hazard goes on as if there were none.
[[nodiscard]] double expected_losses(const PlannedOffer& offer, double age_s, double seconds);

/// The share of the next hour in which the place of a server of this offer that is `age_s` old now
/// has a worker, if each loss leaves it without one for the time that a server takes to start.
[[nodiscard]] double up_share(const PlannedOffer& offer, double age_s);

/// `plan` may be null. Losses of servers are taken as independent; what else befalls a job is in
/// the spread of the plan's simulated jobs. kNotFound if neither a plan nor enough of the run says
/// how fast it is.
[[nodiscard]] Result<Remaining> remaining(const RestOfJob& rest, const KeptPlan* plan);

}  // namespace mayfly::planner
