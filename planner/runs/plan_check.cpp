#include "planner/runs/plan_check.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "planner/fit.hpp"
#include "planner/models/fitted.hpp"

namespace mayfly::planner {
namespace {

double total_of(const Numbers& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// The estimate of by + times * x for the estimate of x; `times` is above 0.
Estimate shifted(const Estimate& estimate, double by, double times) {
  return {by + times * estimate.median, by + times * estimate.low, by + times * estimate.high,
          estimate.unit, estimate.because};
}

/// The time of a number of steps at a speed.
Estimate time_of(const Estimate& speed, double steps) {
  return {steps / speed.median, steps / speed.high, steps / speed.low, "s", speed.because};
}

class Checker {
 public:
  Checker(const RunFacts& run, const RunCourse& course, const Calibration& calibration)
      : run_(run),
        course_(course),
        models_(calibration),
        network_(models_.networks.completed({run.model, "", {}, {}, {}, {}, {}})) {}

  Result<PlanCheck> check() {
    measured_ = measured_speeds(run_);
    for (const RunCourse::Stretch& stretch : course_.stretches) {
      TRY_ASSIGN(const Forecast speed, speed_of(stretch.members));
      predicted_.insert_or_assign(stretch.members, speed.summary());
    }
    check_speeds();
    check_rest();
    take_apart();
    return std::move(found_);
  }

 private:
  [[nodiscard]] Result<Forecast> speed_of(int workers) const {
    Cluster cluster;
    cluster.workers = {{run_.machine, static_cast<double>(workers)}};
    cluster.network = network_;
    return models_.cluster_speeds.speed(cluster);
  }

  void add(const std::string& name, const Result<Forecast>& predicted,
           const std::optional<double>& actual) {
    CheckedQuantity one{name, {}, actual, actual ? "" : "the run does not record it"};
    if (predicted.ok()) {
      one.predicted = predicted.value().summary();
    } else {
      one.missing = predicted.error().detail;
    }
    found_.quantities.push_back(std::move(one));
  }

  void check_speeds() {
    for (const auto& [members, speed] : predicted_) {
      const auto actual = measured_.find(members);
      found_.quantities.push_back(
          {"speed of " + count_of_workers(members), speed,
           actual == measured_.end() ? std::nullopt : std::optional(actual->second),
           actual == measured_.end() ? "too few undisturbed steps" : ""});
    }
    const auto alone = measured_.find(1);
    if (alone != measured_.end()) {
      add("step of one worker", models_.step_times.step(run_.machine, network_), 1 / alone->second);
    }
  }

  static std::optional<double> mean_if_any(const Numbers& values) {
    return values.empty() ? std::nullopt : std::optional(mean_of(values));
  }

  void check_rest() {
    recovery_ = recovery_time(models_.calibration, run_.model, "lost");
    checkpoint_ = models_.checkpoints.stored(network_);
    add("time lost by a loss", recovery_, mean_if_any(run_.recoveries_s));
    add("checkpoint", checkpoint_, mean_if_any(run_.checkpoints_s));
    Numbers starts;
    for (const RunStart& start : run_.starts) {
      starts.push_back(start.provision_s + start.booting_s);
    }
    const bool is_spot = !run_.starts.empty() && run_.starts.front().market == "spot";
    start_ = models_.startups.start(run_.machine, is_spot ? "preemptible" : "on_demand", "", "");
    join_ = join_time(models_.calibration, models_.networks, network_, "new server");
    add("start-up", start_, mean_if_any(starts));
    add("join", join_, mean_if_any(run_.joins_s));
  }

  static double median_or(const Result<Forecast>& forecast, double otherwise) {
    return forecast.ok() ? forecast.value().quantile(0.5) : otherwise;
  }

  /// Replaces one predicted value after the other by the actual one, in this order: losses and
  /// joins, speeds, the start, the recoveries, checkpoints, evaluations. A value that cannot be
  /// predicted is not an error of the plan, so the calculation begins with the actual one.
  void take_apart() {
    const double steps = std::accumulate(
        course_.stretches.begin(), course_.stretches.end(), 0.0,
        [](double sum, const RunCourse::Stretch& stretch) { return sum + stretch.steps; });
    const int planned = course_.stretches.front().members;
    const auto checkpoints = static_cast<double>(run_.checkpoints_s.size());
    const double checkpoint_s = checkpoints * median_or(checkpoint_, 0);
    const bool knows_start = start_.ok() && join_.ok();
    const double start_s =
        knows_start ? median_or(start_, 0) + median_or(join_, 0) : course_.start_s;
    const Estimate work = time_of(predicted_.at(planned), steps);
    const Estimate total = shifted(work, start_s + checkpoint_s, 1);
    found_.planned_s = total.median;
    found_.actual_s = course_.total_s;
    found_.quantities.push_back({"total time without losses", total, course_.total_s, ""});
    check_cost(total, planned);

    const double with_members =
        work_s(course_, [this](int members) { return predicted_.at(members).median; });
    const double with_speeds = work_s(course_, [this](int members) {
      const auto actual = measured_.find(members);
      return actual == measured_.end() ? predicted_.at(members).median : actual->second;
    });
    found_.causes = {{"losses and joins of workers", with_members - work.median},
                     {"speeds", with_speeds - with_members},
                     {"the start", course_.start_s - start_s},
                     {"recoveries", total_of(run_.recoveries_s)},
                     {"checkpoints", total_of(run_.checkpoints_s) - checkpoint_s},
                     {"evaluations", course_.evaluations_s}};
    finish_causes(found_);
  }

  void check_cost(const Estimate& total, int planned) {
    CheckedQuantity cost{
        "cost without losses", {}, course_.cost, course_.cost ? "" : "its workers have no price"};
    const std::string market = run_.prices.empty() ? "" : run_.prices.front().market;
    const Result<double> price = models_.prices.server(run_.machine, market);
    if (price.ok()) {
      const std::vector<BilledServer> servers(static_cast<std::size_t>(planned),
                                              {price.value(), 0, 0});
      const BillingRule rule = run_.has_provider ? BillingRule::kProduct : BillingRule::kStudies;
      const auto cost_at = [&](double end_s) { return cost_of(servers, end_s, end_s, rule); };
      cost.predicted = Estimate{cost_at(total.median), cost_at(total.low), cost_at(total.high),
                                "money", total.because};
    } else {
      cost.missing = price.error().detail;
    }
    found_.quantities.push_back(std::move(cost));
  }

  const RunFacts& run_;
  const RunCourse& course_;
  FittedModels models_;
  Network network_;
  std::map<int, double> measured_;     // steps per second by members
  std::map<int, Estimate> predicted_;  // the same
  Result<Forecast> recovery_ = Error{Errc::kNotFound, ""};
  Result<Forecast> checkpoint_ = Error{Errc::kNotFound, ""};
  Result<Forecast> start_ = Error{Errc::kNotFound, ""};
  Result<Forecast> join_ = Error{Errc::kNotFound, ""};
  PlanCheck found_;
};

}  // namespace

std::optional<bool> CheckedQuantity::is_inside() const {
  if (!predicted || !actual) {
    return std::nullopt;
  }
  return predicted->low <= *actual && *actual <= predicted->high;
}

std::map<int, double> measured_speeds(const RunFacts& run) {
  std::map<int, Numbers> seconds;
  for (const RunStep& step : run.steps) {
    seconds[step.members].push_back(step.seconds);
  }
  std::map<int, double> speeds;
  for (const auto& [members, times] : seconds) {
    if (times.size() >= kStepsOfSpeed) {
      speeds[members] = static_cast<double>(times.size()) / total_of(times);
    }
  }
  return speeds;
}

double work_s(const RunCourse& course, const std::function<double(int)>& speed_at) {
  double seconds = 0;
  for (const RunCourse::Stretch& stretch : course.stretches) {
    seconds += stretch.steps / speed_at(stretch.members);
  }
  return seconds;
}

std::string count_of_workers(int count) {
  return std::to_string(count) + (count == 1 ? " worker" : " workers");
}

void finish_causes(PlanCheck& check) {
  double rest = check.actual_s - check.planned_s;
  for (const TimeCause& cause : check.causes) {
    rest -= cause.seconds;
  }
  check.causes.push_back({"redone work, rebalancing and waiting", rest});
  std::ranges::stable_sort(check.causes, [](const TimeCause& a, const TimeCause& b) {
    return std::abs(a.seconds) > std::abs(b.seconds);
  });
}

Result<PlanCheck> check_plan(const RunFacts& run, const RunCourse& course,
                             const Calibration& calibration) {
  if (course.was_resumed) {
    return Error{Errc::kNotFound, run.name + " was resumed: no plan is made for several parts"};
  }
  if (run.machine.empty() || run.steps.empty() || course.stretches.empty()) {
    return Error{Errc::kNotFound,
                 run.name + ": " +
                     (run.remarks.empty() ? std::string("it has no speeds to compare")
                                          : run.remarks.back())};
  }
  return Checker(run, course, calibration).check();
}

}  // namespace mayfly::planner
