// Checkpoints, start-ups, lifetimes and losses of servers, accuracies.

#include <algorithm>

#include "base/try_assign.hpp"
#include "planner/models/accuracy.hpp"
#include "planner/predict/models.hpp"

namespace mayfly::planner {
namespace {

constexpr double kTimeMost = 1e9;
constexpr double kCountMost = 1e12;
constexpr double kHoursAsked = 24 * 365;
constexpr double kExact = 1e-9;

Result<SwitchRuns> switch_runs_in(const FittedModels& models, Query& query) {
  return SwitchRuns::of(models.calibration, query.text("workload"));
}

/// The forecast of a count or rate for which the calibration has few events: a gamma distribution.
Forecast rare(double value, double events, const std::string& unit, const std::string& because) {
  const double shape = std::max(events, 0.5);
  return {[=](double p) { return value <= 0 ? 0 : gamma_quantile(p, value, shape); }, value, unit,
          because};
}

std::string batches(const LossBursts& bursts) {
  return std::to_string(static_cast<int>(bursts.batches)) + " batches of lifetime_servers.csv";
}

}  // namespace

Result<Forecast> predict_checkpoint_time(const FittedModels& models, Query& query) {
  return models.checkpoints.stored(network_in(models, query));
}

Result<Forecast> predict_checkpoint_local_time(const FittedModels& models, Query& query) {
  return models.checkpoints.local(network_in(models, query));
}

Result<Forecast> predict_startup_time(const FittedModels& models, Query& query) {
  const std::string gpu = query.needed_text("gpu");
  const std::string stage = query.text("stage");
  if (!stage.empty() && stage != "provision" && stage != "staging" && stage != "booting") {
    query.complain("stage is none of provision, staging and booting");
  }
  return models.startups.start(gpu, query.text("class"), query.text("asked"), stage);
}

Result<Forecast> predict_join_time(const FittedModels& models, Query& query) {
  const std::string where = query.text("where");
  return join_time(models.calibration, models.networks, network_in(models, query),
                   where.empty() ? "new server" : where);
}

Result<Forecast> predict_recovery_time(const FittedModels& models, Query& query) {
  const std::string cause = query.text("cause");
  return recovery_time(models.calibration, query.text("model"), cause.empty() ? "lost" : cause);
}

Result<Forecast> predict_chief_loss(const FittedModels& models, Query& query) {
  const double since = query.needed_number("steps_since_checkpoint", 0, kCountMost);
  const auto given = query.number("steps_per_s", kExact, kCountMost);
  double steps_per_s = given.value_or(1);
  if (!given) {
    const Cluster cluster = cluster_in(models, query);
    if (query.problem()) {
      return *query.problem();
    }
    TRY_ASSIGN(const Forecast speed, models.cluster_speeds.speed(cluster));
    steps_per_s = speed.summary().median;
  }
  return chief_loss(models.calibration, since, steps_per_s);
}

Result<Forecast> predict_remaining_time(const FittedModels& models, Query& query) {
  const double step = query.needed_number("step_of_revocation", 0, kCountMost);
  if (!query.has("steps")) {
    return remaining_time(models.calibration, step);
  }
  const double steps = query.needed_number("steps", 1, kCountMost);
  const double speed = query.needed_number("steps_per_s", kExact, kCountMost);
  const double reduced = query.needed_number("steps_per_s_after_loss", 0, kCountMost);
  const double request_s = query.needed_number("replaced_after_s", 0, kTimeMost);
  const double alone_s = (steps - step) / std::max(reduced, kExact);
  const double seconds =
      alone_s <= request_s ? alone_s : request_s + (steps - step - request_s * reduced) / speed;
  const double more = remaining_time_constant(models.calibration);
  return absolute_forecast(std::max(seconds + more, 0.0), std::max(2.0, 0.01 * seconds), 8, 0,
                           kTimeMost, {"s", "given speeds; constant of remaining_time.csv"});
}

Result<Forecast> predict_revoked_share(const FittedModels& models, Query& query) {
  const std::string gpu = query.needed_text("gpu");
  const std::string region = query.text("region");
  const double hours = query.needed_number("hours", 0, kHoursAsked);
  const double age_h = query.number("age_h", 0, kHoursAsked).value_or(0);
  const double servers = query.number("servers", 1, kCountMost).value_or(0);
  return models.lifetimes.revoked_share(gpu, region, age_h, hours, servers);
}

Result<Forecast> predict_lifetime(const FittedModels& models, Query& query) {
  const std::string gpu = query.needed_text("gpu");
  return models.lifetimes.lifetime(gpu, query.text("region"),
                                   query.number("age_h", 0, kHoursAsked).value_or(0));
}

Result<Forecast> predict_hour_of_day_factor(const FittedModels& models, Query& query) {
  return models.lifetimes.hour_of_day_factor(query.needed_number("hour", 0, 24));
}

Result<Forecast> predict_losses_together(const FittedModels& models, Query& /*query*/) {
  TRY_ASSIGN(const LossBursts bursts, models.lifetimes.bursts());
  return absolute_forecast(bursts.share_of_losses, 0.15, 8, 0, 1, {"share", batches(bursts)});
}

Result<Forecast> predict_shocks_per_hour(const FittedModels& models, Query& /*query*/) {
  TRY_ASSIGN(const LossBursts bursts, models.lifetimes.bursts());
  return rare(bursts.shocks_per_hour, bursts.batches, "1/h", batches(bursts));
}

Result<Forecast> predict_shock_share(const FittedModels& models, Query& /*query*/) {
  TRY_ASSIGN(const LossBursts bursts, models.lifetimes.bursts());
  return absolute_forecast(bursts.share_taken, 0.2, 8, 0, 1, {"share", batches(bursts)});
}

Result<Forecast> predict_accuracy(const FittedModels& models, Query& query) {
  const auto fraction = query.number("fraction", 0, 1);
  if (fraction) {
    TRY_ASSIGN(const SwitchRuns runs, switch_runs_in(models, query));
    return runs.accuracy(*fraction);
  }
  double workers = 0;
  for (const WorkerGroup& group :
       query.has("cluster")
           ? workers_in(query)
           : std::vector<WorkerGroup>{{"", query.needed_number("workers", 1, kCountMost), 0}}) {
    workers += group.workers;
  }
  return asynchronous_accuracy(models.calibration, std::max(workers, 1.0));
}

Result<Forecast> predict_switch_time(const FittedModels& models, Query& query) {
  const double fraction = query.needed_number("fraction", 0, 1);
  TRY_ASSIGN(const SwitchRuns runs, switch_runs_in(models, query));
  return runs.time(fraction);
}

Result<Forecast> predict_divergence(const FittedModels& models, Query& query) {
  const double fraction = query.needed_number("fraction", 0, 1);
  TRY_ASSIGN(const SwitchRuns runs, switch_runs_in(models, query));
  return runs.divergence(fraction);
}

}  // namespace mayfly::planner
