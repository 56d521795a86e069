#pragma once

// The output of `mayfly plan`: tables for users, one JSON object for programs. Any thread.

#include <optional>
#include <string>
#include <vector>

#include "planner/search/advice.hpp"
#include "planner/search/question.hpp"
#include "planner/search/scenario.hpp"

namespace mayfly::cli {

/// An offer that no plan uses, and why.
struct LeftOut {
  std::string offer;
  std::string reason;
};

/// A plan's answer with everything that is printed with it.
struct PlanReport {
  std::string job;                 ///< "1280000 images of resnet20"
  std::string priced, calibrated;  ///< dates, or "unknown date"
  std::size_t offers = 0;
  planner::Question question;
  planner::Answer answer;
  std::optional<planner::Advice> advice;  ///< if a plan was chosen
  std::string scenario;                   ///< in words; empty = nothing was changed
  std::optional<planner::Answer> changed;
  std::vector<LeftOut> left_out;
  std::vector<std::string> warnings;
  /// Speeds of more workers than this are extrapolated; 0 = none is.
  std::uint32_t workers_measured_most = 0;
};

/// `rows`: the most rows of the table.
[[nodiscard]] std::string plan_text(const planner::Market& market, const PlanReport& report,
                                    std::size_t rows);
/// The report as one line of JSON, with all rows.
[[nodiscard]] std::string plan_json(const planner::Market& market, const PlanReport& report);

}  // namespace mayfly::cli
