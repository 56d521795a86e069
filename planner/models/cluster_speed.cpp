#include "planner/models/cluster_speed.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "base/try_assign.hpp"

namespace mayfly::planner {
namespace {

/// Bends that are averaged over.
constexpr double kBends[] = {2.5, 3, 4, 5, 6, 8, 10, 12};
/// Relative errors of one measured speed that are averaged over.
constexpr double kNoises[] = {0.015, 0.025, 0.04, 0.06};
constexpr double kLeastWeight = 1e-3;  // of a fit that counts, beside the best one
/// Standard deviations of logarithms before any measurement.
constexpr double kWaitShare = 0.8;  // of 1/K, that a worker waits for its own update
constexpr double kWaitShareSd = 0.4;
constexpr double kServersEffect = 0.08;  // of other parameter servers on one worker's speed
constexpr double kKindEffect = 0.03;     // of a whole job against steady training
constexpr double kGroupEffect = 0.03;    // of one campaign of one cluster type
constexpr double kUnknownCeiling = 2.0;
constexpr double kLeastCeilingSd = 0.12;
constexpr double kSecondServerGain = 0.4;  // log of the factor, without any measurement
constexpr double kSecondServerSd = 0.3;
constexpr double kKnownCeilingSd = 0.15;
constexpr double kDegrees = 8;
constexpr double kExchangeShare =
    0.15;  // of one worker's step, by which an exchange makes it longer
constexpr double kSplitCampaign = 0.15;  // relative spread of runs that had losses among them

double saturated(double log_sum, double log_ceiling, double bend) {
  // log of (S^-q + K^-q)^(-1/q), without overflow
  const double low = std::min(log_sum, log_ceiling);
  const double apart = std::abs(log_sum - log_ceiling);
  return low - std::log1p(std::exp(-bend * apart)) / bend;
}

double sum_of(const Numbers& parameters, const std::vector<std::size_t>& places) {
  double sum = 0;
  for (const std::size_t place : places) {
    sum += parameters[place];
  }
  return sum;
}

std::string base_name(const std::string& gpu, const std::string& model) {
  return "base " + gpu + " " + model;
}
std::string servers_name(int servers) {
  return "servers " + std::to_string(servers);
}
std::string kind_name(const std::string& gpu, const std::string& kind) {
  return "kind " + gpu + " " + kind;
}
std::string ceiling_name(const std::string& model, int servers) {
  return "ceiling " + std::to_string(servers) + " " + model;
}

std::string exchange_name(const std::string& gpu, const std::string& model) {
  return "exchange " + gpu + " " + model;
}

std::string group_name(const std::tuple<std::string, std::string, int, std::string>& group) {
  return "group " + std::get<0>(group) + " " + std::get<1>(group) + " " +
         std::to_string(std::get<2>(group)) + " " + std::get<3>(group);
}

double megabytes(const Network& network) {
  return *network.params * kBytesPerParameter / kBytesPerMb;
}

}  // namespace

ClusterSpeeds::ClusterSpeeds(const Calibration& calibration, const StepTimes& step_times,
                             const Networks& networks)
    : step_times_(step_times) {
  collect(calibration, networks);
  add_parameters(step_times, networks);
  fit_all();
  fit_ceilings(networks);
  // The second fit: a ceiling that no measurement comes near takes its prior from the other
  // networks.
  for (const Observation& seen : observations_) {
    const auto& [gpu, model, servers, kind] = seen.group;
    const auto found = index_.find(ceiling_name(model, servers));
    if (found != index_.end()) {
      const bool is_known = fits_.front().posterior.covariance[found->second][found->second] <
                            kKnownCeilingSd * kKnownCeilingSd;
      const Prior prior =
          ceiling_prior(networks.completed({model, "", {}, {}, {}, {}, {}}), servers);
      if (!is_known && prior.sd < kUnknownCeiling) {
        priors_[found->second] = prior;
      }
    }
  }
  fit_all();
}

void ClusterSpeeds::collect(const Calibration& calibration, const Networks& networks) {
  const auto add = [this, &networks](Group group, double workers, double speed, double sd) {
    const Network network = networks.completed({std::get<1>(group), "", {}, {}, {}, {}, {}});
    if (workers > 0 && step_times_.step(std::get<0>(group), network).ok()) {
      const WorkSharing* sharing = sharing_of(std::get<0>(group), std::get<1>(group));
      const double effective = sharing ? effective_workers(*sharing, workers) : workers;
      observations_.push_back({std::move(group), workers, std::log(speed), sd, effective});
    }
  };
  for (const ClusterSpeedRow& row : calibration.cluster_speeds) {
    if (row.microbatches && row.threads) {
      sharings_.insert_or_assign({row.gpu, row.model}, WorkSharing{*row.microbatches, *row.threads,
                                                                   row.cores.value_or(0)});
    }
  }
  std::set<std::tuple<std::string, int, int>> whole;
  for (const ClusterSpeedRow& row : calibration.cluster_speeds) {
    const double runs = row.runs.value_or(1);
    add({row.gpu, row.model, row.parameter_servers, row.kind}, row.workers, row.steps_per_s,
        row.sd.value_or(0) / row.steps_per_s / std::sqrt(std::max(runs, 1.0)));
    if (row.kind == kWholeJob) {
      whole.insert({row.gpu, row.workers, row.parameter_servers});
    }
  }
  const std::optional<JobSize> size = job_size(calibration);
  if (!size) {
    return;
  }
  for (const TrainingJobRow& job : calibration.training_jobs) {
    const auto groups = parse_cluster(job.cluster);
    const double spread = job.duration_sd_s.value_or(0) / job.duration_s;
    if (groups.ok() && groups.value().size() == 1 && spread < kSplitCampaign &&
        whole.insert({groups.value()[0].gpu, job.workers, job.parameter_servers}).second) {
      add({groups.value()[0].gpu, size->model, job.parameter_servers, kWholeJob}, job.workers,
          size->steps / job.duration_s, spread / std::sqrt(job.runs));
    }
  }
}

const WorkSharing* ClusterSpeeds::sharing_of(const std::string& gpu,
                                             const std::string& model) const {
  const WorkSharing* of_other = nullptr;
  for (const auto& [key, sharing] : sharings_) {
    if (key.first == gpu && (key.second == model || of_other == nullptr)) {
      of_other = &sharing;
      if (key.second == model) {
        break;
      }
    }
  }
  return of_other;
}

std::size_t ClusterSpeeds::parameter(const std::string& name, Prior prior) {
  const auto [at, is_new] = index_.try_emplace(name, priors_.size());
  if (is_new) {
    priors_.push_back(prior);
  }
  return at->second;
}

void ClusterSpeeds::add_parameters(const StepTimes& step_times, const Networks& networks) {
  for (const Observation& seen : observations_) {
    const auto& [gpu, model, servers, kind] = seen.group;
    const auto step = step_times.step(gpu, networks.completed({model, "", {}, {}, {}, {}, {}}));
    const Estimate single = step.value().summary();
    parameter(
        base_name(gpu, model),
        {-std::log(single.median),
         std::max(std::log(single.high / single.low) / 2 / student_quantile(0.95, 10), 0.01)});
    parameter(servers_name(std::min(servers, 1)), {0, kServersEffect});
    if (kind != kSteady) {
      parameter(kind_name(gpu, kind), {0, kKindEffect});
    }
    parameter(group_name(seen.group), {0, kGroupEffect});
    if (servers == 0 && sharings_.contains({gpu, model})) {
      parameter(exchange_name(gpu, model), {0, kExchangeShare});
    }
    if (servers > 0) {
      double most = seen.log_speed;
      for (const Observation& other : observations_) {
        if (std::get<1>(other.group) == model && std::get<2>(other.group) == servers) {
          most = std::max(most, other.log_speed);
        }
      }
      parameter(ceiling_name(model, servers), {most + 1, kUnknownCeiling});
    }
  }
  wait_ = parameter("wait", {kWaitShare, kWaitShareSd});
  for (Observation& seen : observations_) {
    seen.single = single_of(seen.group);
    const auto& [gpu, model, servers, kind] = seen.group;
    if (servers > 0) {
      seen.ceiling = index_.at(ceiling_name(model, servers));
    }
  }
}

ClusterSpeeds::Single ClusterSpeeds::single_of(const Group& group) const {
  const auto& [gpu, model, servers, kind] = group;
  Single single;
  for (const std::string& name : {base_name(gpu, model), servers_name(std::min(servers, 1)),
                                  kind_name(gpu, kind), group_name(group)}) {
    if (const auto at = index_.find(name); at != index_.end()) {
      single.logs.push_back(at->second);
    }
  }
  const auto exchange = index_.find(exchange_name(gpu, model));
  if (servers == 0 && exchange != index_.end()) {
    single.exchange = exchange->second;
  }
  const auto one = index_.find(ceiling_name(model, 1));
  const auto more = index_.find(ceiling_name(model, servers));
  if (servers > 1 && one != index_.end() && more != index_.end()) {
    single.one = one->second;
    single.more = more->second;
  }
  return single;
}

double ClusterSpeeds::single_step_s(const Single& single, const Numbers& parameters,
                                    double log_outside) const {
  const double step_s = std::exp(-log_outside - sum_of(parameters, single.logs));
  if (!single.one) {
    return step_s;
  }
  const double saved_s = parameters[wait_] *
                         (std::exp(-parameters[*single.one]) - std::exp(-parameters[*single.more]));
  return std::max(step_s - saved_s, step_s / 2);
}

double ClusterSpeeds::sum_of_workers(const Single& single, const Numbers& parameters,
                                     double workers, double effective, double log_outside,
                                     double further_step_s) const {
  const double step_s = single_step_s(single, parameters, log_outside) + further_step_s;
  const double exchange_s = single.exchange && workers > 1
                                ? parameters[*single.exchange] * step_s * (workers - 1) / workers
                                : 0;
  // If the exchange seems to take a negative time, the work is shared better than whole
  // microbatches allow, but at most twice as well.
  return 1 / std::max(step_s / effective + exchange_s, step_s / effective / 2);
}

/// The weight of the result is the logarithm of the evidence; fit_all() converts it.
ClusterSpeeds::Fit ClusterSpeeds::fit_with(double bend, double noise) const {
  const Residuals residuals = [&](const Numbers& parameters) {
    Numbers errors;
    errors.reserve(observations_.size());
    for (const Observation& seen : observations_) {
      double log_speed =
          std::log(sum_of_workers(seen.single, parameters, seen.workers, seen.effective, 0, 0));
      if (seen.ceiling) {
        log_speed = saturated(log_speed, parameters[*seen.ceiling], bend);
      }
      errors.push_back((log_speed - seen.log_speed) / std::hypot(noise, seen.sd));
    }
    return errors;
  };
  Fit fit{bend, noise, 0, fit_posterior(priors_, residuals)};
  fit.weight = fit.posterior.log_evidence;
  for (const Observation& seen : observations_) {
    fit.weight -= std::log(std::hypot(noise, seen.sd));
  }
  return fit;
}

void ClusterSpeeds::fit_all() {
  if (observations_.empty()) {
    return;
  }
  fits_.clear();
  double best = -std::numeric_limits<double>::infinity();
  for (const double bend : kBends) {
    for (const double noise : kNoises) {
      fits_.push_back(fit_with(bend, noise));
      best = std::max(best, fits_.back().weight);
    }
  }
  double sum = 0;
  for (Fit& fit : fits_) {
    fit.weight = std::exp(fit.weight - best);
  }
  std::erase_if(fits_, [](const Fit& fit) { return fit.weight < kLeastWeight; });
  for (const Fit& fit : fits_) {
    sum += fit.weight;
  }
  for (Fit& fit : fits_) {
    fit.weight /= sum;
  }
  std::sort(fits_.begin(), fits_.end(),
            [](const Fit& a, const Fit& b) { return a.weight > b.weight; });
}

void ClusterSpeeds::fit_ceilings(const Networks& networks) {
  std::vector<Numbers> features, gains;
  Numbers values, log_gains;
  std::map<std::string, double> with_one;
  for (const int servers : {1, 2}) {
    for (const auto& [name, i] : index_) {
      const std::string prefix = ceiling_name("", servers);
      if (!name.starts_with(prefix)) {
        continue;
      }
      const std::string model = name.substr(prefix.size());
      const Network network = networks.completed({model, "", {}, {}, {}, {}, {}});
      const Posterior& posterior = fits_.front().posterior;
      if (!network.params || posterior.covariance[i][i] > kKnownCeilingSd * kKnownCeilingSd) {
        continue;
      }
      if (servers == 1) {
        with_one[model] = posterior.mean[i];
        if (network.tensors) {
          features.push_back({*network.tensors, megabytes(network)});
          values.push_back(1000 / std::exp(posterior.mean[i]));
        }
      } else if (with_one.contains(model)) {
        gains.push_back({1, std::log(megabytes(network))});
        log_gains.push_back(std::max(posterior.mean[i] - with_one[model], 0.01));
      }
    }
  }
  if (values.size() >= 2) {
    ceiling_ = relative_fit(features, values);
    const Numbers errors = leave_one_out(features, values);
    ceiling_sd_ = std::max(kLeastCeilingSd, values.size() > 2 ? root_mean_square(errors) : 0.25);
  }
  if (log_gains.size() >= 2) {
    // A plain fit, not a relative one: a factor near one must not count more than others.
    const Posterior line =
        fit_posterior({{kSecondServerGain, 1}, {0, 1}}, [&](const Numbers& line_at) {
          Numbers errors;
          for (std::size_t i = 0; i < gains.size(); ++i) {
            errors.push_back((dot(gains[i], line_at) - log_gains[i]) / 0.1);
          }
          return errors;
        });
    second_server_ = line.mean;
  }
}

Prior ClusterSpeeds::ceiling_prior(const Network& network, int servers) const {
  if (ceiling_.empty() || !network.params || !network.tensors) {
    return {0, kUnknownCeiling};
  }
  const double ms = dot(ceiling_, {*network.tensors, megabytes(network)});
  if (ms <= 0) {
    return {0, kUnknownCeiling};
  }
  double gain = 0;
  double gain_sd = 0;
  if (servers > 1) {
    const double of_second = second_server_.empty()
                                 ? kSecondServerGain
                                 : dot(second_server_, {1, std::log(megabytes(network))});
    gain = std::clamp(of_second, 0.0, std::log(2.2)) * std::log2(servers);
    gain_sd = second_server_.empty() ? kSecondServerSd : kSecondServerSd / 3;
  }
  return {std::log(1000 / ms) + gain, std::hypot(ceiling_sd_, gain_sd)};
}

Result<std::vector<ClusterSpeeds::Part>> ClusterSpeeds::parts_of(const Cluster& cluster,
                                                                 std::string& because) const {
  std::vector<Part> parts;
  const std::string& model = cluster.network.model;
  for (const WorkerGroup& workers : cluster.workers) {
    if (workers.workers <= 0) {
      continue;
    }
    const Group group{workers.gpu, model, cluster.parameter_servers, cluster.kind};
    const WorkSharing* sharing = sharing_of(workers.gpu, model);
    const bool is_shared = sharing != nullptr && cluster.workers.size() == 1;
    Part part{workers.workers,
              workers.further_step_s,
              is_shared ? effective_workers(*sharing, workers.workers) : workers.workers,
              single_of(group),
              0,
              0};
    if (is_shared) {
      because += std::to_string(std::lround(sharing->microbatches)) + " microbatches a step, " +
                 std::to_string(std::lround(sharing->threads)) + " threads a worker; ";
    }
    if (index_.contains(base_name(workers.gpu, model))) {
      const auto seen =
          std::count_if(observations_.begin(), observations_.end(), [&](const Observation& other) {
            return std::get<0>(other.group) == workers.gpu && std::get<1>(other.group) == model;
          });
      because += std::to_string(seen) + " measured clusters of " + workers.gpu + " with " + model;
    } else {
      TRY_ASSIGN(const Forecast step, step_times_.step(workers.gpu, cluster.network));
      const Estimate single = step.summary();
      part.log_outside = -std::log(single.median);
      part.outside_sd = std::log(single.high / single.low) / 2 / student_quantile(0.95, kDegrees);
      because += single.because;
    }
    because += "; ";
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<Forecast> ClusterSpeeds::synchronous_speed(const Cluster& cluster) const {
  constexpr double kInterval90 = 3.29;  // standard deviations between the quantiles 5 and 95 %
  std::string because;
  TRY_ASSIGN(const std::vector<Part> parts, parts_of(cluster, because));
  const auto fitted = index_.find(ceiling_name(cluster.network.model, cluster.parameter_servers));
  const Prior inferred = ceiling_prior(cluster.network, cluster.parameter_servers);
  if (parts.empty() || fits_.empty() || cluster.parameter_servers == 0 ||
      (fitted == index_.end() && inferred.sd >= kUnknownCeiling)) {
    return Error{Errc::kNotFound, "the limit of the parameter servers is not known"};
  }
  const Numbers& best = fits_.front().posterior.mean;
  double slowest_s = 0;
  double workers = 0;
  for (const Part& part : parts) {
    const double speed =
        sum_of_workers(part.single, best, 1, 1, part.log_outside, part.further_step_s);
    slowest_s = std::max(slowest_s, 1 / speed);
    workers += part.workers;
  }
  const double served_s =
      std::exp(-(fitted != index_.end() ? best[fitted->second] : inferred.mean));
  const double longest_s = slowest_s + (workers - 1) * served_s;
  const double shortest_s = std::max(slowest_s, workers * served_s);
  TRY_ASSIGN(const Forecast asynchronous, speed(cluster));
  const Estimate spread = asynchronous.summary();
  const double sd = std::hypot(std::log(spread.high / spread.low),
                               std::max(0.0, std::log(longest_s / shortest_s))) /
                    kInterval90;
  because += "rounds of the slowest worker and the servers, which is derived and not measured";
  return relative_forecast(workers / std::sqrt(longest_s * shortest_s), sd, kDegrees,
                           {"steps/s", because});
}

Result<Forecast> ClusterSpeeds::speed(const Cluster& cluster) const {
  std::string because;
  TRY_ASSIGN(const std::vector<Part> parts, parts_of(cluster, because));
  if (parts.empty()) {
    return absolute_forecast(0, 0, kDegrees, 0, 0, {"steps/s", "there are no workers"});
  }
  const auto fitted = index_.find(ceiling_name(cluster.network.model, cluster.parameter_servers));
  const Prior inferred = ceiling_prior(cluster.network, cluster.parameter_servers);
  const bool is_limited =
      cluster.parameter_servers > 0 && (fitted != index_.end() || inferred.sd < kUnknownCeiling);
  because += !is_limited              ? "no limit of parameter servers"
             : fitted != index_.end() ? "limit of the servers from measured clusters"
                                      : "limit of the servers from other networks' tensors and MB";
  static const std::vector<Fit> kNoFit = {
      {kBends[std::size(kBends) / 2], kNoises[std::size(kNoises) / 2], 1, {}}};
  double mean = 0, square = 0, variance = 0;
  for (const Fit& fit : fits_.empty() ? kNoFit : fits_) {
    const auto log_speed = [&](const Numbers& parameters, double ceiling_shift,
                               const Part* shifted) {
      double sum = 0;
      for (const Part& part : parts) {
        sum += sum_of_workers(part.single, parameters, part.workers, part.effective,
                              part.log_outside + (&part == shifted ? part.outside_sd : 0),
                              part.further_step_s);
      }
      const double limit =
          fitted != index_.end() ? parameters[fitted->second] : inferred.mean + ceiling_shift;
      return is_limited ? saturated(std::log(sum), limit, fit.bend) : std::log(sum);
    };
    const Numbers& best = fit.posterior.mean;
    const double at = log_speed(best, 0, nullptr);
    const double from_fit = fit.posterior.deviation_of(
        [&](const Numbers& parameters) { return log_speed(parameters, 0, nullptr); });
    double around = from_fit * from_fit + std::pow(log_speed(best, inferred.sd, nullptr) - at, 2);
    for (const Part& part : parts) {
      around += std::pow(log_speed(best, 0, &part) - at, 2);
    }
    mean += fit.weight * at;
    square += fit.weight * at * at;
    variance += fit.weight * (around + fit.noise * fit.noise);
  }
  variance += std::max(square - mean * mean, 0.0) + kGroupEffect * kGroupEffect;
  return relative_forecast(std::exp(mean), std::sqrt(variance), kDegrees, {"steps/s", because});
}

}  // namespace mayfly::planner
