// `mayfly plan`: the plans of a job (plan_search.hpp); `mayfly plan predict`: questions to the
// planner's models, one JSON object a line; `mayfly plan fit` and `check`: measurements from own
// runs, and the comparison of a run with its plan.

#include "base/parse.hpp"
#include "cli/calibration_folder.hpp"
#include "cli/cli.hpp"
#include "cli/plan_check.hpp"
#include "cli/plan_fit.hpp"
#include "cli/plan_search.hpp"
#include "planner/predict/predictor.hpp"

namespace mayfly::cli {
namespace {

int predict(const planner::Calibration& calibration, Context& context) {
  const planner::Predictor predictor(calibration);
  std::string line;
  while (context.in != nullptr && context.out && std::getline(*context.in, line)) {
    if (!trimmed(line).empty()) {
      context.out << predictor.answer(line) << std::endl;  // flushed for interactive use
    }
  }
  return context.out ? kExitDone : kExitFailed;
}

}  // namespace

int plan(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.empty()) {
    return plan_job(arguments, context);
  }
  if (arguments.positionals.front() == "fit") {
    return plan_fit(arguments, context);
  }
  if (arguments.positionals.front() == "check") {
    return plan_check(arguments, context);
  }
  if (arguments.positionals != std::vector<std::string>{"predict"}) {
    return context.complain("plan expects predict, fit RUN_DIR..., check RUN_DIR, or nothing",
                            kExitUsage);
  }
  const std::string folder = arguments.option("calibration");
  if (folder.empty()) {
    return context.complain("plan predict needs --calibration DIR", kExitUsage);
  }
  const Result<CalibrationFolder> found = read_calibration(folder);
  if (!found.ok()) {
    return context.complain(found.error());
  }
  for (const std::string& name : found.value().unknown) {
    context.err << "mayfly: " << folder << "/" << name << ": no table has this name, ignored\n";
  }
  return predict(found.value().calibration, context);
}

}  // namespace mayfly::cli
