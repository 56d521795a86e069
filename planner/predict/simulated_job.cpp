// Jobs whose losses are drawn: the product's own replacement of lost servers, on servers as the
// calibration describes them.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "planner/predict/models.hpp"
#include "planner/simulation/calibrated_market.hpp"
#include "planner/simulation/summary.hpp"

namespace mayfly::planner {
namespace {

constexpr double kSimulatedPaths = 2000;
constexpr double kSimulatedSetsMost = 4097;  // sets of workers whose speeds are computed
constexpr double kSimulatedPathsMost = 100'000;
constexpr double kSeedMost = 9e15;
constexpr double kHoursADay = 24;
constexpr double kCheckpointSecondsMost = 1e9;
/// A path that takes more than this many times as long as one without a loss is given up.
constexpr double kTimesLonger = 4;
/// The most hours of all servers on all paths: some seconds of computing.
constexpr double kServerHoursMost = 1e7;
/// If a larger share of paths is given up, the quantiles of the others are not meaningful.
constexpr double kGivenUpMost = 0.04;

struct SimulatedJob {
  Market market;
  JobModel job;
  Candidate candidate;
  std::uint64_t paths = 0;
  std::uint64_t seed = 0;
  double undisturbed_s = 0;
  std::string because;
};

/// The speed of each set of up to `most` workers by machine type, computed once. Larger sets are
/// rare: a type has more workers only while servers of another type are out of stock.
class SpeedTable {
 public:
  SpeedTable(ClusterSpeed speed, std::vector<std::uint32_t> most)
      : speed_(std::move(speed)), most_(std::move(most)) {
    std::vector<std::uint32_t> workers(most_.size(), 0);
    do {
      speeds_.push_back(speed_(workers));
    } while (go_on(workers));
  }

  double operator()(std::span<const std::uint32_t> workers) const {
    std::size_t place = 0;
    for (std::size_t machine = most_.size(); machine-- > 0;) {
      if (workers[machine] > most_[machine]) {
        return speed_(workers);
      }
      place = place * (most_[machine] + 1) + workers[machine];
    }
    return speeds_[place];
  }

 private:
  /// Advances to the next set, in which the first type's number changes fastest; false after the
  /// last one.
  [[nodiscard]] bool go_on(std::vector<std::uint32_t>& workers) const {
    for (std::size_t machine = 0; machine < workers.size(); ++machine) {
      if (workers[machine]++ < most_[machine]) {
        return true;
      }
      workers[machine] = 0;
    }
    return false;
  }

  ClusterSpeed speed_;
  std::vector<std::uint32_t> most_;
  std::vector<double> speeds_;
};

/// An offer for each machine type of the cluster, and how many workers each has.
Result<void> offer_servers(const FittedModels& models, const Cluster& cluster,
                           const std::string& region, cloud_hooks::Market market,
                           SimulatedJob& simulated) {
  std::vector<std::string> gpus;
  std::vector<std::uint32_t> counts;
  for (const WorkerGroup& group : cluster.workers) {
    TRY_ASSIGN(OfferModel offer,
               calibrated_offer(models, cluster.network, {group.gpu, region, market}));
    offer.machine = gpus.size();
    simulated.candidate.offers.push_back(simulated.market.offers.size());
    simulated.market.offers.push_back(std::move(offer));
    gpus.push_back(group.gpu);
    counts.push_back(static_cast<std::uint32_t>(group.workers));
  }
  simulated.market.machines = gpus.size();
  simulated.market.zones = {calibrated_zone(models, region)};
  simulated.candidate.workers = std::accumulate(counts.begin(), counts.end(), 0U);
  if (counts.size() > 1) {
    simulated.candidate.composition = counts;
  }
  simulated.job.speed =
      SpeedTable(calibrated_speed(models, cluster, std::move(gpus)), std::move(counts));
  return {};
}

/// Checks that the numbers of workers are whole, that machine types differ, and that the number of
/// sets is small enough to be computed quickly.
void check_cluster(const Cluster& cluster, Query& query) {
  double sets = 1;
  std::set<std::string> types;
  for (const WorkerGroup& group : cluster.workers) {
    sets *= group.workers + 1;
    if (group.workers != std::floor(group.workers)) {
      query.complain("workers is not a whole number");
    }
    if (!types.insert(group.gpu).second) {
      query.complain("cluster names " + group.gpu + " twice");
    }
  }
  if (sets > kSimulatedSetsMost) {
    query.complain("workers is out of range of what is simulated");
  }
}

Result<void> check_length(const SimulatedJob& job) {
  const double hours = job.undisturbed_s / kSecondsPerHour;
  if (hours * job.candidate.workers * static_cast<double>(job.paths) > kServerHoursMost) {
    return Error{Errc::kInvalidInput,
                 "a job of " + std::to_string(std::lround(hours)) +
                     " h on so many workers is too long to simulate that often; ask for fewer "
                     "paths"};
  }
  return {};
}

Result<SimulatedJob> simulated_job_in(const FittedModels& models, Query& query) {
  SimulatedJob simulated;
  const Cluster cluster = job_cluster_in(models, query);
  check_cluster(cluster, query);
  const std::string market = query.text("market");
  if (!market.empty() && market != "spot" && market != "on_demand") {
    query.complain("market is neither spot nor on_demand");
  }
  const bool is_spot = market != "on_demand";
  const std::string region = is_spot ? query.needed_text("region") : "";
  const std::optional<double> steps = steps_in(models, cluster.network, query);
  if (!steps) {
    query.complain("steps is missing");
  }
  simulated.paths = static_cast<std::uint64_t>(
      query.number("paths", 1, kSimulatedPathsMost).value_or(kSimulatedPaths));
  simulated.seed = static_cast<std::uint64_t>(query.number("seed", 0, kSeedMost).value_or(1));
  const auto checkpoint_every_s = query.number("checkpoint_every_s", 1, kCheckpointSecondsMost);
  simulated.job.clock_s = kSecondsPerHour * query.number("launch_hour", 0, kHoursADay).value_or(0);
  if (query.problem()) {
    return *query.problem();
  }
  TRY(offer_servers(models, cluster, region,
                    is_spot ? cloud_hooks::Market::kSpot : cloud_hooks::Market::kOnDemand,
                    simulated));
  TRY_ASSIGN(const Forecast speed, models.cluster_speeds.speed(cluster));
  if (checkpoint_every_s) {
    TRY_ASSIGN(const Forecast checkpoint, models.checkpoints.stored(cluster.network));
    simulated.job.checkpoint_s = checkpoint.quantile(0.5);
    simulated.candidate.checkpoint_every_s = *checkpoint_every_s;
  }
  if (cluster.parameter_servers > 0) {
    TRY_ASSIGN(const double price, models.prices.parameter_server());
    simulated.job.other_cost_per_hour = price * kSecondsPerHour * cluster.parameter_servers;
  }
  simulated.job.work = *steps;
  if (const Result<Forecast> recovery =
          recovery_time(models.calibration, cluster.network.model, "lost");
      recovery.ok()) {
    simulated.job.recovery_s = recovery.value().quantile(0.5);
  }
  simulated.job.speed_log_sd = log_sd(speed);
  simulated.undisturbed_s = *steps / speed.quantile(0.5);
  TRY(check_length(simulated));
  simulated.because = std::to_string(simulated.paths) + " simulated jobs (seed " +
                      std::to_string(simulated.seed) +
                      "), lost servers replaced; speed: " + speed.because;
  return simulated;
}

double value_of(const PathOutcome& path, PathQuantity quantity, double horizon_s) {
  switch (quantity) {
    case PathQuantity::kDuration: return std::min(path.finish_s, horizon_s);
    case PathQuantity::kCost: return path.cost;
    case PathQuantity::kLosses: return path.losses;
  }
  return 0;
}

const char* unit_of(PathQuantity quantity) {
  switch (quantity) {
    case PathQuantity::kDuration: return "s";
    case PathQuantity::kCost: return "usd";
    case PathQuantity::kLosses: return "servers";
  }
  return "";
}

}  // namespace

bool has_simulated_losses(Query& query) {
  return query.is("losses", "simulated");
}

Result<Forecast> simulated_job(const FittedModels& models, Query& query, PathQuantity quantity) {
  TRY_ASSIGN(const SimulatedJob simulated, simulated_job_in(models, query));
  double start_s = 0;
  for (const OfferModel& offer : simulated.market.offers) {
    start_s = std::max(start_s, offer.start_up.mean() + offer.join.mean());
  }
  const double horizon_s = kTimesLonger * (simulated.undisturbed_s + start_s);
  const std::vector<PathOutcome> paths =
      simulate(simulated.market, simulated.job, simulated.candidate, horizon_s, simulated.seed, 0,
               simulated.paths);
  const Summary summary = summarise(paths);
  if (1 - summary.finished.value > kGivenUpMost) {
    return Error{
        Errc::kInvalidInput,
        "only " + std::to_string(std::lround(100 * summary.finished.value)) +
            " % of the simulated jobs finish within " +
            std::to_string(std::lround(horizon_s / kSecondsPerHour)) +
            " h: all servers are lost at once too often for a job of this length" +
            (simulated.candidate.checkpoint_every_s > 0 ? "" : " without checkpoint_every_s")};
  }
  std::vector<double> values;
  for (const PathOutcome& path : paths) {
    values.push_back(value_of(path, quantity, horizon_s));
  }
  const double error = spread_of(values).error;
  Forecast forecast = sampled_forecast(std::move(values), {unit_of(quantity), simulated.because});
  forecast.standard_error = error;
  return forecast;
}

Result<Forecast> predict_job_losses(const FittedModels& models, Query& query) {
  (void)has_simulated_losses(query);
  return simulated_job(models, query, PathQuantity::kLosses);
}

}  // namespace mayfly::planner
