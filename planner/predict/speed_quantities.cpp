// Step times, speeds of clusters, durations and costs of jobs.

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
    if (loss.replaced_s && *loss.replaced_s < loss.at_s) {
      part.complain("losses: replaced_s is before at_s");
    }
    for (const std::string& name : part.unused()) {
      part.complain("losses: there is no field " + name);
    }
    query.take_problem(part);
    losses.push_back(loss);
  }
  return losses;
}

struct JobQuestion {
  Cluster cluster;
  std::vector<Loss> losses;
  double steps = 1;
  std::string split;
};

JobQuestion job_in(const FittedModels& models, Query& query) {
  JobQuestion job;
  const bool has_duration = query.has("duration_s");
  job.cluster = job_cluster_in(models, query);
  job.losses = losses_in(query);
  job.split = query.text("split");
  const std::optional<double> steps = steps_in(models, job.cluster.network, query);
  if (!steps && !has_duration) {
    query.complain("steps is missing");
  }
  if (!job.split.empty() && !job.losses.empty()) {
    query.complain("losses of a cluster over regions are not predicted");
  }
  job.steps = steps.value_or(1);
  return job;
}

Result<Forecast> duration_of(const FittedModels& models, const JobQuestion& job) {
  if (job.split.empty()) {
    return job_duration(models.cluster_speeds, job.cluster, job.steps, job.losses);
  }
  TRY_ASSIGN(const Forecast speed, models.distant_workers.speed(job.cluster, job.split));
  return Forecast{[speed, job](double p) { return job.steps / speed.quantile(1 - p); },
                  job.steps / speed.mean, "s", speed.because};
}

Result<std::vector<BilledServer>> servers_of(const FittedModels& models, const JobQuestion& job,
                                             const std::string& market, double startup_s) {
  TRY_ASSIGN(const std::vector<GroupLoss> losses,
             losses_of_groups(job.cluster.workers, job.losses));
  std::vector<BilledServer> servers;
  for (std::size_t group = 0; group < job.cluster.workers.size(); ++group) {
    TRY_ASSIGN(const double price, models.prices.server(job.cluster.workers[group].gpu, market));
    // Oldest first: that one is lost, because all servers of a group have the same price.
    std::size_t alive = servers.size();
    servers.insert(servers.end(), static_cast<std::size_t>(job.cluster.workers[group].workers),
                   {price, 0, 0});
    for (const auto& [of, loss] : losses) {
      for (double left = loss.workers; of == group && left > 0 && alive < servers.size(); --left) {
        servers[alive++].lost_s = startup_s + loss.at_s;
        if (loss.replaced_s) {
          servers.push_back({price, startup_s + loss.at_s, startup_s + loss.at_s});
        }
      }
    }
  }
  if (job.cluster.parameter_servers > 0) {
    TRY_ASSIGN(const double price, models.prices.parameter_server());
    servers.insert(servers.end(), static_cast<std::size_t>(job.cluster.parameter_servers),
                   {price, 0, 0});
  }
  return servers;
}

}  // namespace

Result<Forecast> predict_step_time(const FittedModels& models, Query& query) {
  const std::string gpu = query.needed_text("gpu");
  const Network network = network_in(models, query);
  const std::string kind = query.text("kind");
  const auto latency = query.number("network_latency_ms", 0, kSecondsMost);
  return models.step_times.step_with_latency(
      gpu, network, latency.value_or(models.step_times.base_latency_ms()), kind);
}

Result<Forecast> predict_cluster_speed(const FittedModels& models, Query& query) {
  const Cluster cluster = cluster_in(models, query);
  const std::string split = query.text("split");
  return split.empty() ? models.cluster_speeds.speed(cluster)
                       : models.distant_workers.speed(cluster, split);
}

Result<Forecast> predict_job_duration(const FittedModels& models, Query& query) {
  if (has_simulated_losses(query)) {
    return simulated_job(models, query, PathQuantity::kDuration);
  }
  const JobQuestion job = job_in(models, query);
  return query.problem() ? Result<Forecast>(*query.problem()) : duration_of(models, job);
}

Result<Forecast> predict_job_cost(const FittedModels& models, Query& query) {
  if (has_simulated_losses(query)) {
    return simulated_job(models, query, PathQuantity::kCost);
  }
  const auto given_s = query.number("duration_s", 0, kSecondsMost);
  const JobQuestion job = job_in(models, query);
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
  const Result<Forecast> duration =
      given_s ? absolute_forecast(*given_s, 0, 1, 0, kSecondsMost, {"s", "given duration"})
              : duration_of(models, job);
  TRY(duration);
  TRY_ASSIGN(const std::vector<BilledServer> servers, servers_of(models, job, market, startup_s));
  const Forecast time = duration.value();
  const auto cost = [servers, startup_s, rule](double seconds) {
    return cost_of(servers, seconds, startup_s + seconds, rule);
  };
  return Forecast{[time, cost](double p) { return cost(time.quantile(p)); }, cost(time.mean), "usd",
                  time.because + "; prices.csv"};
}

}  // namespace mayfly::planner
