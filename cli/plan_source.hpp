#pragma once

// Where a plan's market and job come from: a market file, or a folder with the measurements of
// studies. Any thread.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/plan_report.hpp"
#include "planner/simulation/market.hpp"

namespace mayfly::cli {

/// The market that is planned on: those of the offers of which enough is known.
struct PlanSource {
  planner::Market market;
  planner::JobModel job;
  double work_per_step = 1;    ///< of the job's work
  std::uint64_t steps = 0;     ///< of the job, if they do not follow from its settings
  std::vector<double> speeds;  ///< of one worker, by offer
  std::vector<LeftOut> left_out;
  std::uint32_t measured_most = 0;  ///< workers up to which speeds are known; 0 = any number
  std::string job_text;             ///< for people
  std::string priced, calibrated;   ///< dates, or what is known of them
  std::vector<std::string> warnings;
  /// As planner::Question has it; empty if it does not depend on the workers.
  std::function<std::optional<double>(const planner::Candidate&)> accuracy;
};

/// By --market, with the offers and prices of the job if it has some. kInvalidInput with one line
/// if nothing can be planned.
[[nodiscard]] Result<PlanSource> source_of_market(const ParsedArguments& arguments,
                                                  const engine::JobConfig& config);

/// By --calibration: machine types, regions, prices and speeds of a study, for a job with
/// asynchronous workers and parameter servers; of the job's offers only, if it has some, at their
/// prices. The same errors.
[[nodiscard]] Result<PlanSource> source_of_calibration(const ParsedArguments& arguments,
                                                       const engine::JobConfig& config);

}  // namespace mayfly::cli
