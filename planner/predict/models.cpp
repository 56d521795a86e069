#include "planner/predict/models.hpp"

namespace mayfly::planner {
namespace {

constexpr double kSizeMost = 1e15;
constexpr double kWorkersMost = 1e6;
constexpr double kJobStepsMost = 1e12;

}  // namespace

const std::vector<Quantity>& all_quantities() {
  static const std::vector<Quantity> list = {
      {"step_time", predict_step_time},
      {"cluster_speed", predict_cluster_speed},
      {"job_duration", predict_job_duration},
      {"job_cost", predict_job_cost},
      {"job_losses", predict_job_losses},
      {"checkpoint_time", predict_checkpoint_time},
      {"checkpoint_local_time", predict_checkpoint_local_time},
      {"startup_time", predict_startup_time},
      {"join_time", predict_join_time},
      {"recovery_time", predict_recovery_time},
      {"chief_loss", predict_chief_loss},
      {"remaining_time", predict_remaining_time},
      {"revoked_share", predict_revoked_share},
      {"lifetime", predict_lifetime},
      {"hour_of_day_factor", predict_hour_of_day_factor},
      {"losses_together", predict_losses_together},
      {"shocks_per_hour", predict_shocks_per_hour},
      {"shock_share", predict_shock_share},
      {"accuracy", predict_accuracy},
      {"switch_time", predict_switch_time},
      {"divergence", predict_divergence}};
  return list;
}

Network network_in(const FittedModels& models, Query& query) {
  Network network;
  network.model = query.text("model");
  network.family = query.text("family");
  network.gflops = query.number("gflops", 1e-9, kSizeMost);
  network.params = query.number("params", 1, kSizeMost);
  network.tensors = query.number("tensors", 1, kSizeMost);
  network.weights_mb = query.number("weights_mb", 1e-9, kSizeMost);
  network.meta_mb = query.number("meta_mb", 0, kSizeMost);
  return models.networks.completed(network);
}

std::vector<WorkerGroup> workers_in(Query& query) {
  const std::string text = query.text("cluster");
  if (text.empty()) {
    return {{query.needed_text("gpu"), query.needed_number("workers", 1, kWorkersMost), 0}};
  }
  const Result<std::vector<WorkerGroup>> groups = parse_cluster(text);
  if (!groups.ok()) {
    query.complain(groups.error().detail);
    return {};
  }
  return groups.value();
}

Cluster cluster_in(const FittedModels& models, Query& query) {
  Cluster cluster;
  cluster.workers = workers_in(query);
  cluster.network = network_in(models, query);
  cluster.parameter_servers =
      static_cast<int>(query.number("parameter_servers", 0, kWorkersMost).value_or(0));
  const std::string kind = query.text("kind");
  cluster.kind = kind.empty() ? kSteady : kind;
  return cluster;
}

Cluster job_cluster_in(const FittedModels& models, Query& query) {
  Cluster cluster = cluster_in(models, query);
  cluster.kind = query.has("kind") ? cluster.kind : kWholeJob;
  return cluster;
}

std::optional<double> steps_in(const FittedModels& models, const Network& network, Query& query) {
  const auto steps = query.number("steps", 1, kJobStepsMost);
  const bool is_known = models.size && network.model == models.size->model;
  return steps || !is_known ? steps : models.size->steps;
}

}  // namespace mayfly::planner
