#include "cli/plan_keep.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/try_assign.hpp"
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

Result<planner::KeptPlan> read_plan(const std::string& path) {
  TRY_ASSIGN(const std::string text, engine::read_plan_file(path));
  planner::KeptPlan plan;
  TRY(engine::with_object("plan " + path + " is of another version", text,
                          [&plan](const boost::json::object& object) {
                            plan = engine::record_of<planner::KeptPlan>(object);
                            for (const planner::PlannedSpeeds& speeds : plan.speeds) {
                              (void)speeds.steps_per_s.at(0);
                            }
                          }));
  return plan;
}

}  // namespace mayfly::cli
