#pragma once

// The sources of a plan's market and job: a market file, or a folder with the measurements of
// studies. Any thread.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/plan_report.hpp"
#include "planner/simulation/market.hpp"

namespace mayfly::cli {

/// The market of the plan: the offers of which enough is known.
struct PlanSource {
  planner::Market market;
  planner::JobModel job;
  double work_per_step = 1;    ///< of the job's work
  std::uint64_t steps = 0;     ///< of the job, if they do not follow from its settings
  std::vector<double> speeds;  ///< of one worker, by offer
  std::vector<LeftOut> left_out;
  std::uint32_t measured_most = 0;  ///< workers up to which speeds are known; 0 = any number
  std::string job_text;             ///< for the user
  std::string priced, calibrated;   ///< dates, or other information about the age
  std::vector<std::string> warnings;
  /// Question::accuracy; empty if the accuracy does not depend on the workers.
  std::function<std::optional<double>(const planner::Candidate&)> accuracy;
};

/// From --market, with the offers and prices of the job if it has some. kInvalidInput with one line
/// if nothing can be planned.
[[nodiscard]] Result<PlanSource> source_of_market(const ParsedArguments& arguments,
                                                  const engine::JobConfig& config);

/// From --calibration: machine types, regions, prices and speeds of a study, for a job with
/// asynchronous workers and parameter servers. If the job has offers, only these, at their prices.
/// Fails like source_of_market().
[[nodiscard]] Result<PlanSource> source_of_calibration(const ParsedArguments& arguments,
                                                       const engine::JobConfig& config);

}  // namespace mayfly::cli
