// Step times, speeds of clusters, durations and costs of jobs.

#include <cmath>

#include "base/try_assign.hpp"
#include "planner/models/job.hpp"
#include "planner/predict/models.hpp"

namespace mayfly::planner {
namespace {

constexpr double kSecondsMost = 1e9;
constexpr double kStepsMost = 1e12;

std::vector<Loss> losses_in(Query& query) {
  std::vector<Loss> losses;
  for (Query& part : query.list("losses")) {
    Loss loss;
    loss.at_s = part.needed_number("at_s", 0, kSecondsMost);
    loss.gpu = part.text("gpu");
    loss.workers = part.number("workers", 1, kStepsMost).value_or(1);
    loss.replaced_s = part.number("replaced_s", 0, kSecondsMost);
    for (const std::string& name : part.unused()) {
      part.complain("losses: there is no field " + name);
    }
    query.take_problem(part);
    losses.push_back(loss);
  }
  return losses;
}

double steps_in(const Predictor::Models& models, const Cluster& cluster, Query& query) {
  const auto steps = query.number("steps", 1, kStepsMost);
  if (!steps && (!models.size || cluster.network.model != models.size->model)) {
    query.complain("steps is missing");
  }
  return steps.value_or(models.size ? models.size->steps : 1);
}

}  // namespace

Result<Forecast> predict_step_time(const Predictor::Models& models, Query& query) {
  const std::string gpu = query.needed_text("gpu");
  const Network network = network_in(models, query);
  const std::string kind = query.text("kind");
  const auto latency = query.number("network_latency_ms", 0, kSecondsMost);
  return models.step_times.step_with_latency(
      gpu, network, latency.value_or(models.step_times.base_latency_ms()), kind);
}

Result<Forecast> predict_cluster_speed(const Predictor::Models& models, Query& query) {
  return models.cluster_speeds.speed(cluster_in(models, query));
}

Result<Forecast> predict_job_duration(const Predictor::Models& models, Query& query) {
  Cluster cluster = cluster_in(models, query);
  cluster.kind = query.has("kind") ? cluster.kind : kWholeJob;
  const std::vector<Loss> losses = losses_in(query);
  return job_duration(models.cluster_speeds, cluster, steps_in(models, cluster, query), losses);
}

Result<Forecast> predict_job_cost(const Predictor::Models& models, Query& query) {
  Cluster cluster = cluster_in(models, query);
  cluster.kind = query.has("kind") ? cluster.kind : kWholeJob;
  const std::vector<Loss> losses = losses_in(query);
  const double steps = steps_in(models, cluster, query);
  const std::string market = query.needed_text("market");
  const std::string rule_name = query.text("billing");
  if (!rule_name.empty() && rule_name != "studies" && rule_name != "product") {
    query.complain("billing is neither studies nor product");
  }
  const BillingRule rule = rule_name == "product" ? BillingRule::kProduct : BillingRule::kStudies;
  const double startup_s = query.number("startup_s", 0, kSecondsMost).value_or(0);
  if (query.problem()) {
    return *query.problem();
  }
  const auto duration =
      query.has("duration_s")
          ? Result<Forecast>(absolute_forecast(query.needed_number("duration_s", 0, kSecondsMost),
                                               0, 1, 0, kSecondsMost, {"s", "given duration"}))
          : job_duration(models.cluster_speeds, cluster, steps, losses);
  TRY(duration);
  std::vector<BilledServer> servers;
  for (const WorkerGroup& group : cluster.workers) {
    TRY_ASSIGN(const double price, models.prices.server(group.gpu, market));
    double alive = group.workers;
    for (const Loss& loss : losses) {
      if (!loss.gpu.empty() && loss.gpu != group.gpu) {
        continue;
      }
      const double lost = std::min(loss.workers, alive);
      alive -= lost;
      for (int i = 0; i < static_cast<int>(lost); ++i) {
        servers.push_back({price, 0, 0, startup_s + loss.at_s});
        if (loss.replaced_s) {
          servers.push_back({price, startup_s + loss.at_s, startup_s + loss.at_s});
        }
      }
    }
    servers.insert(servers.end(), static_cast<std::size_t>(alive), {price, 0, 0});
  }
  if (cluster.parameter_servers > 0) {
    TRY_ASSIGN(const double price, models.prices.parameter_server());
    servers.insert(servers.end(), static_cast<std::size_t>(cluster.parameter_servers),
                   {price, 0, 0});
  }
  const Forecast time = duration.value();
  const auto cost = [servers, startup_s, rule](double seconds) {
    return cost_of(servers, seconds, startup_s + seconds, rule);
  };
  return Forecast{[time, cost](double p) { return cost(time.quantile(p)); }, cost(time.mean), "usd",
                  time.because + "; prices.csv"};
}

}  // namespace mayfly::planner
