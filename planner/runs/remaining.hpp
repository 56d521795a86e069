#pragma once

// Time and cost of the rest of a running job, with their central 90 %: from the remaining steps,
// the speed of the run so far, and, if the job was started from a plan, the plan's spread and its
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
  /// Members that will compute once the missing servers have joined; at least `members`.
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

/// The expected number of losses within `seconds` for one server of this offer, which is `age_s`
/// old now, and its successors. A server that reaches the longest lifetime is followed by a new
/// one; after another loss the hazard continues with the same age.
[[nodiscard]] double expected_losses(const PlannedOffer& offer, double age_s, double seconds);

/// The share of the next hour in which a server of this offer that is `age_s` old now, or its
/// successor, has a working worker. After each loss there is none for the start-up time of a
/// server.
[[nodiscard]] double up_share(const PlannedOffer& offer, double age_s);

/// `plan` may be null. Losses of servers are assumed to be independent; the spread of the plan's
/// simulated jobs contains all other disturbances. kNotFound if the speed is known neither from a
/// plan nor from enough steps of the run.
[[nodiscard]] Result<Remaining> remaining(const RestOfJob& rest, const KeptPlan* plan);

}  // namespace mayfly::planner
