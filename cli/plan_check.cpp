#include "cli/plan_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>

#include "base/try_assign.hpp"
#include "cli/calibration_folder.hpp"
#include "cli/run_facts.hpp"
#include "engine/cloud/kept_plan.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"
#include "planner/runs/plan_check.hpp"

namespace mayfly::cli {
namespace {

namespace json = boost::json;

using planner::CheckedQuantity;
using planner::PlanCheck;

/// The result of the check in one sentence.
std::string conclusion_of(const PlanCheck& check) {
  const double apart = check.actual_s - check.planned_s;
  const planner::TimeCause& cause = *std::ranges::max_element(
      check.causes, {}, [](const planner::TimeCause& one) { return std::abs(one.seconds); });
  return fmt::format(
      "The run took {:.1f} s, {:.1f} s {} than predicted ({:+.1f} %); the largest "
      "part is {} ({:+.1f} s).",
      check.actual_s, std::abs(apart), apart < 0 ? "less" : "more", 100 * apart / check.planned_s,
      cause.name, cause.seconds);
}

std::string as_text(const std::string& run, const PlanCheck& check) {
  std::string out =
      check.plan.empty()
          ? run + ", planned in hindsight\n"
          : fmt::format("{}, started from a plan: {}\nit is based on {}\n{}", run, check.plan,
                        check.rests_on, check.composition.empty() ? "" : check.composition + "\n");
  out +=
      fmt::format("{:<26} {:>10} {:>10} {:>10} {:>10}\n", "", "predicted", "5 %", "95 %", "actual");
  std::string missing;
  for (const CheckedQuantity& one : check.quantities) {
    if (!one.predicted || !one.actual) {
      missing += fmt::format("{}: not compared: {}\n", one.name, one.missing);
      continue;
    }
    out += fmt::format("{:<26} {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g}  {:<8} {}\n", one.name,
                       one.predicted->median, one.predicted->low, one.predicted->high, *one.actual,
                       one.predicted->unit, *one.is_inside() ? "inside" : "outside");
  }
  out += missing + conclusion_of(check) + "\nby cause, seconds:\n";
  for (const planner::TimeCause& cause : check.causes) {
    out += fmt::format("  {:<38} {:>+10.2f}\n", cause.name, cause.seconds);
  }
  return out;
}

json::object to_json(const std::string& run, const PlanCheck& check) {
  json::array quantities, causes;
  for (const CheckedQuantity& one : check.quantities) {
    json::object quantity = {{"name", one.name}};
    if (one.predicted) {
      quantity["median"] = one.predicted->median;
      quantity["low"] = one.predicted->low;
      quantity["high"] = one.predicted->high;
      quantity["unit"] = one.predicted->unit;
      quantity["because"] = one.predicted->because;
    }
    if (one.actual) {
      quantity["actual"] = *one.actual;
    }
    if (one.is_inside()) {
      quantity["inside"] = *one.is_inside();
    } else {
      quantity["missing"] = one.missing;
    }
    quantities.push_back(std::move(quantity));
  }
  for (const planner::TimeCause& cause : check.causes) {
    causes.push_back({{"cause", cause.name}, {"seconds", cause.seconds}});
  }
  json::object object = {{"run", run},
                         {"quantities", std::move(quantities)},
                         {"planned_s", check.planned_s},
                         {"actual_s", check.actual_s},
                         {"causes", std::move(causes)},
                         {"conclusion", conclusion_of(check)}};
  if (!check.plan.empty()) {
    object["plan"] = check.plan;
    object["rests_on"] = check.rests_on;
  }
  if (!check.composition.empty()) {
    object["composition"] = check.composition;
  }
  return object;
}

/// Plans the run in hindsight with --calibration, and otherwise compares it with the plan in its
/// directory.
Result<PlanCheck> compared(const std::string& path, const RunRecord& record,
                           const std::string& calibration) {
  if (!calibration.empty()) {
    TRY_ASSIGN(const CalibrationFolder found, read_calibration(calibration));
    return planner::check_plan(record.facts, record.course, found.calibration);
  }
  std::error_code failure;
  if (!std::filesystem::exists(engine::plan_path(path), failure)) {
    return Error{Errc::kInvalidInput,
                 path +
                     " keeps no plan: start jobs from the file of `mayfly plan --write`, or "
                     "give --calibration DIR, the measurements to plan the run with"};
  }
  TRY_ASSIGN(const planner::KeptPlan plan, engine::read_kept_plan(engine::plan_path(path)));
  return planner::check_kept_plan(record.facts, record.course, plan);
}

Result<void> check(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.size() != 2) {
    return Error{Errc::kInvalidInput, "plan check expects one run directory, such as runs/a"};
  }
  const std::string& path = arguments.positionals[1];
  TRY_ASSIGN(const RunKnowledge knowledge, read_knowledge(arguments));
  TRY_ASSIGN(const RunRecord record, read_run_record(path, knowledge));
  TRY_ASSIGN(const PlanCheck checked, compared(path, record, arguments.option("calibration")));
  context.out << (arguments.has("json") ? engine::json_text(to_json(path, checked)) + "\n"
                                        : as_text(path, checked));
  return {};
}

}  // namespace

int plan_check(const ParsedArguments& arguments, Context& context) {
  const Result<void> done = check(arguments, context);
  return done.ok() ? kExitDone : context.complain(done.error());
}

}  // namespace mayfly::cli
