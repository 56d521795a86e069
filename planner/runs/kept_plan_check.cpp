// Compares a run with the plan from which it was started.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/statistics.hpp"
#include "planner/fit.hpp"
#include "planner/runs/plan_check.hpp"

namespace mayfly::planner {
namespace {

constexpr const char* kOtherWorkers = "other workers than planned";

class KeptPlanChecker {
 public:
  KeptPlanChecker(const RunFacts& run, const RunCourse& course, const KeptPlan& plan)
      : run_(run), course_(course), plan_(plan), measured_(measured_speeds(run)) {
    for (const RunCourse::Stretch& stretch : course.stretches) {
      steps_ += stretch.steps;
    }
    first_ = course.stretches.front().members;
  }

  PlanCheck check() {
    found_.plan = plan_.plan;
    found_.rests_on = plan_.rests_on;
    compare_speeds();
    compare_servers();
    compare_totals();
    compare_composition();
    take_apart();
    return std::move(found_);
  }

 private:
  [[nodiscard]] bool is_whole() const { return steps_ > plan_.steps - 0.5; }

  void add(const std::string& name, const PlannedRange& range, const std::string& unit,
           const std::optional<double>& actual, const std::string& missing) {
    found_.quantities.push_back({name,
                                 Estimate{range.median, range.low, range.high, unit, plan_.plan},
                                 actual, actual ? "" : missing});
  }

  void compare_speeds() {
    std::set<int> counts;
    for (const RunCourse::Stretch& stretch : course_.stretches) {
      counts.insert(stretch.members);
    }
    for (const int members : counts) {
      const auto actual = measured_.find(members);
      add("speed of " + count_of_workers(members), plan_.speed_range(run_.machine, members),
          "steps/s", actual == measured_.end() ? std::nullopt : std::optional(actual->second),
          "too few undisturbed steps");
    }
  }

  void compare_servers() {
    Numbers starts;
    for (const RunStart& start : run_.starts) {
      starts.push_back(start.provision_s + start.booting_s);
    }
    const bool has_starts = !starts.empty() && !run_.joins_s.empty();
    add("start of a server", plan_.offers.empty() ? PlannedRange() : plan_.offers.front().start_s,
        "s", has_starts ? std::optional(mean_of(starts) + mean_of(run_.joins_s)) : std::nullopt,
        "the run does not record it");
  }

  void compare_totals() {
    const std::string part = "the run has " + std::to_string(std::llround(steps_)) + " of " +
                             std::to_string(std::llround(plan_.steps)) + " steps";
    const auto if_whole = [this](double value) {
      return is_whole() ? std::optional(value) : std::nullopt;
    };
    const auto lost = std::ranges::count(run_.workers, true, &RunWorker::is_lost);
    add("servers lost", plan_.losses, "servers", if_whole(static_cast<double>(lost)), part);
    add("total time", plan_.time_s, "s", if_whole(course_.total_s), part);
    add("cost", plan_.cost, "money", is_whole() ? course_.cost : std::nullopt,
        is_whole() ? "its workers have no price" : part);
  }

  void compare_composition() {
    std::map<std::string, int> used;
    bool is_other = first_ != static_cast<int>(plan_.workers);
    for (const RunWorker& worker : run_.workers) {
      if (worker.is_first && !worker.offer.empty()) {
        ++used[worker.offer];
        is_other = is_other || plan_.find_offer(worker.offer) == nullptr;
      }
    }
    if (!is_other) {
      return;
    }
    found_.composition =
        "planned: " + plan_.plan + "; the run began with " + count_of_workers(first_);
    for (const auto& [offer, count] : used) {
      found_.composition += ", " + std::to_string(count) + " x " + offer;
    }
  }

  /// Replaces the planned values by the actual ones in this order. If the run had other workers
  /// than the plan, that is the first cause, even if its effect is small.
  void take_apart() {
    const double share = steps_ / plan_.steps;
    found_.planned_s = plan_.starting_s + (plan_.time_s.median - plan_.starting_s) * share;
    found_.actual_s = course_.total_s;
    const auto planned_at = [this](int members) {
      return plan_.speed(run_.machine, std::max(1, members));
    };
    const double as_planned = steps_ / plan_.speed("", static_cast<int>(plan_.workers));
    const bool is_other = !found_.composition.empty();
    const double as_first = is_other ? steps_ / planned_at(first_) : as_planned;
    const double with_members = work_s(course_, planned_at);
    const double with_speeds = work_s(course_, [&](int members) {
      const auto actual = measured_.find(members);
      return actual == measured_.end() ? planned_at(members) : actual->second;
    });
    const double stopped = std::reduce(run_.recoveries_s.begin(), run_.recoveries_s.end()) +
                           std::reduce(run_.checkpoints_s.begin(), run_.checkpoints_s.end());
    found_.causes = {
        {"losses and joins of workers", with_members - as_first - share * plan_.missing_s},
        {"speeds", with_speeds - with_members},
        {"the start", course_.start_s - plan_.starting_s},
        {"recoveries and checkpoints", stopped - share * plan_.stopped_s},
        {"evaluations", course_.evaluations_s}};
    if (course_.was_resumed) {
      found_.causes.push_back({"time in which the job did not run", course_.not_running_s});
    }
    const TimeCause other{kOtherWorkers, as_first - as_planned};
    if (is_other) {
      found_.causes.push_back(other);
    }
    finish_causes(found_);
    const auto place = std::ranges::find(found_.causes, kOtherWorkers, &TimeCause::name);
    if (is_other) {
      std::rotate(found_.causes.begin(), place, place + 1);
    }
  }

  const RunFacts& run_;
  const RunCourse& course_;
  const KeptPlan& plan_;
  const std::map<int, double> measured_;  // steps per second by members
  double steps_ = 0;
  int first_ = 0;  // members of the first step
  PlanCheck found_;
};

}  // namespace

Result<PlanCheck> check_kept_plan(const RunFacts& run, const RunCourse& course,
                                  const KeptPlan& plan) {
  if (plan.model != run.model || plan.global_batch != run.global_batch) {
    const auto job = [](const std::string& model, double batch) {
      return model + " with batches of " + std::to_string(std::llround(batch));
    };
    return Error{Errc::kInvalidInput,
                 "the plan in " + run.name + " is one for " + job(plan.model, plan.global_batch) +
                     ", and the run trains " + job(run.model, run.global_batch) +
                     ": give --calibration DIR to plan it in hindsight"};
  }
  if (course.stretches.empty() || plan.steps <= 0 || plan.speeds.empty()) {
    return Error{Errc::kInvalidInput, run.name + " has nothing to compare with its plan"};
  }
  return KeptPlanChecker(run, course, plan).check();
}

}  // namespace mayfly::planner
