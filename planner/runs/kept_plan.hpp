#pragma once

// The part of a plan that is kept with the job that is started from it: the predicted quantities
// with their central 90 %, the measurements behind them, and the models that predict the rest of
// the job. The descriptions `fields` are those of records (engine/run/record_json.hpp). Pure; any
// thread. Times in seconds; money in the currency of the prices.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/distributions.hpp"
#include "planner/search/question.hpp"

namespace mayfly::planner {

struct PlannedRange {
  double low = 0, median = 0, high = 0;

  static void fields(auto& io, auto& r) {
    io("low", r.low);
    io("median", r.median);
    io("high", r.high);
  }
};

struct PlannedOffer {
  std::string offer;    ///< "TYPE in ZONE (MARKET)", as records have it
  std::string machine;  ///< its type
  double price_per_hour = 0;
  std::vector<std::pair<double, double>> hazard;  ///< ages and cumulative hazards of a server
  std::optional<double> cap_s;                    ///< age at which every server ends
  double hazard_log_sd = 0;                       ///< as OfferModel has it
  double shocks_per_s = 0;                        ///< losses of a server by the shocks of its zone
  PlannedRange start_s;  ///< of a server, from its request to its worker's first step

  [[nodiscard]] LifetimeTable lifetime() const;

  static void fields(auto& io, auto& r) {
    io("offer", r.offer);
    io("machine", r.machine);
    io("price_per_hour", r.price_per_hour);
    io("hazard", r.hazard);
    io("cap_s", r.cap_s);
    io("hazard_log_sd", r.hazard_log_sd);
    io("shocks_per_s", r.shocks_per_s);
    io("start_s", r.start_s);
  }
};

/// The speeds of workers on one machine type; of a composition, of workers in its proportions.
struct PlannedSpeeds {
  std::string machine;
  std::vector<double> steps_per_s;  ///< of 1, 2, ... workers

  static void fields(auto& io, auto& r) {
    io("machine", r.machine);
    io("steps_per_s", r.steps_per_s);
  }
};

struct KeptPlan {
  std::string plan;                                         ///< in words
  std::string rests_on;                                     ///< the measurements, one sentence
  std::vector<std::pair<std::string, std::string>> inputs;  ///< flags and their values
  std::string model;
  double global_batch = 0;
  double steps = 0;
  std::uint32_t workers = 0;  ///< that compute
  std::vector<PlannedOffer> offers;
  std::vector<PlannedSpeeds> speeds;  ///< of each machine type; the first one is requested first
  double speed_log_sd = 0;            ///< of all speeds together, as JobModel has it
  double recovery_s = 0, checkpoint_s = 0, checkpoint_every_s = 0;
  std::string checkpoint_because;     ///< the reason, if the plan chose the interval
  std::optional<double> deadline_s;   ///< of the question, since the job's begin
  bool is_fastest = false;            ///< the goal: the least time, not the least cost
  PlannedRange time_s, cost, losses;  ///< of the whole job
  double starting_s = 0, missing_s = 0,
         stopped_s = 0;  ///< mean lost times, as PathOutcome has them

  /// The speed of `count` workers on that machine type, in steps per second. For another type, or
  /// more workers than planned, it is extrapolated in proportion. 0 for no workers.
  [[nodiscard]] double speed(const std::string& machine, int count) const;
  /// The central 90 % of such a speed.
  [[nodiscard]] PlannedRange speed_range(const std::string& machine, int count) const;
  /// The offer with this text; nullptr if the plan has none such.
  [[nodiscard]] const PlannedOffer* find_offer(const std::string& text) const;

  static void fields(auto& io, auto& r) {
    io("plan", r.plan);
    io("rests_on", r.rests_on);
    io("inputs", r.inputs);
    io("model", r.model);
    io("global_batch", r.global_batch);
    io("steps", r.steps);
    io("workers", r.workers);
    io("offers", r.offers);
    io("speeds", r.speeds);
    io("speed_log_sd", r.speed_log_sd);
    io("recovery_s", r.recovery_s);
    io("checkpoint_s", r.checkpoint_s);
    io("checkpoint_every_s", r.checkpoint_every_s);
    io("checkpoint_because", r.checkpoint_because);
    io("deadline_s", r.deadline_s);
    io("is_fastest", r.is_fastest);
    io("time_s", r.time_s);
    io("cost", r.cost);
    io("losses", r.losses);
    io("starting_s", r.starting_s);
    io("missing_s", r.missing_s);
    io("stopped_s", r.stopped_s);
  }
};

/// The predictions of a simulated row of a plan. `work_per_step`: in units of JobModel::work. The
/// caller fills the fields that only it knows: `rests_on`, `inputs`, `model`, `global_batch`,
/// `deadline_s`, `is_fastest`, `checkpoint_because`.
[[nodiscard]] KeptPlan kept_plan(const Market& market, const JobModel& job, const Row& row,
                                 double work_per_step);

}  // namespace mayfly::planner
