#include "engine/cloud/kept_plan.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "base/try_assign.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"
#include "planner/runs/remaining.hpp"

namespace mayfly::engine {

Result<planner::KeptPlan> read_kept_plan(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_plan_file(path));
  planner::KeptPlan plan;
  TRY(with_object("plan " + path + " is of another version", text,
                  [&plan](const boost::json::object& object) {
                    plan = record_of<planner::KeptPlan>(object);
                    for (const planner::PlannedSpeeds& speeds : plan.speeds) {
                      (void)speeds.steps_per_s.at(0);
                    }
                  }));
  return plan;
}

std::function<double(const cloud_hooks::Offer&, Duration)> planned_up_share(
    const std::string& run_dir) {
  Result<planner::KeptPlan> plan = read_kept_plan(plan_path(run_dir));
  if (!plan.ok()) {
    return {};
  }
  return [kept = std::move(plan).value()](const cloud_hooks::Offer& offer, Duration age) {
    const planner::PlannedOffer* known = kept.find_offer(to_string(offer));
    return known == nullptr ? 1 : planner::up_share(*known, to_seconds(age));
  };
}

std::string planned_interval(const JobConfig& config) {
  constexpr double kRounding = 1e-3;  // of the job file
  const Result<planner::KeptPlan> plan = read_kept_plan(plan_path(config.run_dir));
  if (!plan.ok() || plan.value().checkpoint_because.empty()) {
    return "";
  }
  const double planned = plan.value().checkpoint_every_s / 60;
  const bool is_planned = std::abs(config.checkpoint_minutes - planned) <= kRounding * planned;
  const std::string is_set = is_planned
                                 ? ""
                                 : fmt::format("{:.1f} min, as it is set; the plan has one every ",
                                               config.checkpoint_minutes);
  return fmt::format("a checkpoint every {}{:.1f} min: {}", is_set, planned,
                     plan.value().checkpoint_because);
}

}  // namespace mayfly::engine
