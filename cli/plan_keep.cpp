#include "cli/plan_keep.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/time.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::cli {

std::string plan_beside(const std::string& job_file) {
  return std::filesystem::path(job_file).replace_extension(".plan.json").string();
}

planner::KeptPlan plan_to_keep(const ParsedArguments& arguments, const engine::JobConfig& config,
                               const PlanSource& planned, const PlanReport& report) {
  const planner::Row& chosen = report.answer.rows.front();
  planner::KeptPlan plan =
      planner::kept_plan(planned.market, planned.job, chosen, planned.work_per_step);
  plan.model = config.model;
  plan.global_batch = config.global_batch;
  plan.deadline_s = report.question.deadline_s;
  plan.is_fastest = report.question.goal == planner::Goal::kFastest;
  if (const auto& checkpoints = report.advice->checkpoints; checkpoints && checkpoints->chosen_s) {
    plan.checkpoint_because =
        fmt::format("{:.2g} s each, {}{:.3g} h between losses of all workers, by Daly's formula",
                    planned.job.checkpoint_s, checkpoints->is_bound ? "at least " : "",
                    checkpoints->mean_to_loss_s / kSecondsPerHour);
  }
  const std::string market = arguments.option("market");
  plan.rests_on = fmt::format("{}prices of {}, calibration of {}; {} simulated jobs, seed {}",
                              market.empty() ? "" : market + ": ", report.priced, report.calibrated,
                              chosen.summary.paths, report.question.seed);
  for (const auto& [name, value] : arguments.options) {
    plan.inputs.emplace_back("--" + name, value);
  }
  for (const auto& [name, value] : arguments.settings) {
    plan.inputs.emplace_back("--" + engine::flag_name(*engine::find_setting(name)), value);
  }
  return plan;
}

std::string text_of_plan(const planner::KeptPlan& plan) {
  return engine::plan_file_text(engine::json_text(engine::object_of(plan)));
}

}  // namespace mayfly::cli
