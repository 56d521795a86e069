#include "planner/runs/run_fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/statistics.hpp"
#include "base/time.hpp"
#include "planner/fit.hpp"
#include "planner/models/cluster_speed.hpp"
#include "planner/models/work_sharing.hpp"
#include "planner/runs/plan_check.hpp"

namespace mayfly::planner {
namespace {

constexpr std::size_t kWindowsMost = 13;
constexpr const char* kMeasured = "measured";
constexpr const char* kInferred = "inferred";

/// Steps per second with a number of workers.
struct SpeedOfRun {
  double per_s = 0;
  double sd = 0;  ///< of it
  std::size_t steps = 0;
};

/// The speed over all steps. Its spread is computed from windows, because slow periods last longer
/// than a step.
SpeedOfRun speed_of_steps(const Numbers& seconds) {
  SpeedOfRun speed;
  speed.steps = seconds.size();
  speed.per_s = static_cast<double>(seconds.size()) / std::reduce(seconds.begin(), seconds.end());
  const std::size_t windows = std::min(kWindowsMost, seconds.size() / 2);
  Numbers of_windows;
  for (std::size_t i = 0; i < windows; ++i) {
    const auto begin = seconds.begin() + static_cast<std::ptrdiff_t>(i * seconds.size() / windows);
    const auto end =
        seconds.begin() + static_cast<std::ptrdiff_t>((i + 1) * seconds.size() / windows);
    of_windows.push_back(static_cast<double>(end - begin) / std::reduce(begin, end));
  }
  speed.sd = deviation_of(of_windows) / std::sqrt(static_cast<double>(windows));
  return speed;
}

/// Converts one run to its rows.
class RunReader {
 public:
  explicit RunReader(const RunFacts& run) : run_(run) {
    fitted_.name = run.name;
    fitted_.date = run.date;
    fitted_.remarks = run.remarks;
  }

  FittedRun read() {
    add_speeds();
    add_lifetimes();
    add_joins();
    add_recoveries();
    add_checkpoints();
    add_prices();
    return std::move(fitted_);
  }

 private:
  void remark(const std::string& text) { fitted_.remarks.push_back(text); }

  void add_speeds() {
    if (run_.machine.empty()) {
      return remark("its workers are of several machine types: no speeds");
    }
    std::map<int, Numbers> seconds;
    for (const RunStep& step : run_.steps) {
      seconds[step.members].push_back(step.seconds);
    }
    std::map<int, SpeedOfRun> speeds;
    for (const auto& [workers, times] : seconds) {
      if (times.size() < kStepsOfSpeed) {
        remark("only " + std::to_string(times.size()) + " undisturbed steps with " +
               count_of_workers(workers) + ": no speed of that many");
        continue;
      }
      const SpeedOfRun& speed = speeds[workers] = speed_of_steps(times);
      ClusterSpeedRow row{run_.machine, run_.model, kSteady, 0, workers, speed.per_s, speed.sd, 1};
      row.microbatches = run_.microbatches;
      row.threads = run_.threads;
      row.cores = run_.cores > 0 ? std::optional(run_.cores) : std::nullopt;
      fitted_.rows.cluster_speeds.push_back(row);
    }
    if (!speeds.empty()) {
      add_step_time(speeds.begin()->first, speeds.begin()->second);
    }
  }

  void add_step_time(int workers, const SpeedOfRun& speed) {
    double times = workers;
    if (run_.threads) {
      times = effective_workers({run_.microbatches, *run_.threads, run_.cores}, workers);
    }
    StepTimeRow row;
    row.gpu = run_.machine;
    row.model = run_.model;
    row.family = run_.family;
    row.gflops = run_.gflops;
    row.params = run_.params;
    row.tensors = run_.tensors;
    row.samples = static_cast<double>(speed.steps);
    row.step_s = times / speed.per_s;
    row.sd_s = row.step_s * speed.sd / speed.per_s;
    row.kind = workers == 1 ? kMeasured : kInferred;
    fitted_.rows.step_times.push_back(row);
    if (workers > 1) {
      remark("the step time of one worker is inferred from " + count_of_workers(workers));
    }
  }

  void add_lifetimes() {
    for (const RunWorker& worker : run_.workers) {
      LifetimeServerRow row;
      row.study = "own runs";
      row.gpu = worker.machine;
      row.zone = worker.zone;
      row.launched = run_.name;
      if (!worker.is_first) {
        row.launched += " + " + std::to_string(std::lround(worker.from_s)) + " s";
      }
      row.launch_hour_of_day = std::fmod(run_.hour_of_day + worker.from_s / kSecondsPerHour, 24);
      row.lifetime_s = worker.lifetime_s;
      row.ended_by = worker.is_lost ? "revoked" : "stopped";
      fitted_.rows.lifetime_servers.push_back(row);
    }
  }

  void add_means(const std::string& what, const Numbers& seconds, const std::string& otherwise) {
    if (seconds.empty()) {
      return remark(otherwise);
    }
    const double sd = seconds.size() > 1 ? deviation_of(seconds) : 0;
    fitted_.rows.replacements.push_back({what, run_.model, mean_of(seconds),
                                         seconds.size() > 1 ? std::optional(sd) : std::nullopt});
  }

  void add_joins() {
    add_means("join, new server", run_.joins_s, "no worker was seen to join: no join time");
    for (const RunStart& start : run_.starts) {
      fitted_.rows.startups.push_back({start.market == "spot" ? "preemptible" : "on_demand",
                                       start.machine, start.provision_s, 0, start.booting_s});
    }
    if (run_.starts.empty()) {
      remark("no start of a server is recorded: no start-up time");
    }
  }

  void add_recoveries() {
    add_means("recovery, lost", run_.recoveries_s, "no worker was lost: no recovery time");
  }

  void add_checkpoints() {
    if (run_.checkpoints_s.empty() || !run_.weights_mb) {
      return remark(run_.checkpoints_s.empty() ? "no checkpoint was written between two steps: no "
                                                 "checkpoint time"
                                               : "it has no checkpoint any more whose bytes could "
                                                 "be counted: no checkpoint time");
    }
    for (const double seconds : run_.checkpoints_s) {
      fitted_.rows.checkpoints.push_back(
          {run_.model, run_.family, run_.tensors, run_.meta_mb, {}, *run_.weights_mb, seconds});
    }
  }

  void add_prices() {
    for (const RunPrice& price : run_.prices) {
      fitted_.rows.prices.push_back(
          {"1x" + price.machine + " server", price.market, price.per_hour / kSecondsPerHour});
    }
    if (run_.prices.empty()) {
      remark("its workers have no price: no prices");
    }
  }

  const RunFacts& run_;
  FittedRun fitted_;
};

/// Runs of one model must have made the same steps.
Result<void> check_comparable(const std::vector<RunFacts>& runs) {
  std::map<std::string, const RunFacts*> first;
  for (const RunFacts& run : runs) {
    const auto [at, is_new] = first.try_emplace(run.model, &run);
    if (!is_new && at->second->settings != run.settings) {
      return Error{Errc::kInvalidInput, run.name + " (" + run.settings + ") and " +
                                            at->second->name + " (" + at->second->settings +
                                            ") made other steps of " + run.model +
                                            ": fit them into separate folders"};
    }
  }
  return {};
}

/// Distinguishes machine types whose workers had other numbers of threads or cores in other runs by
/// a suffix.
void name_by_size(std::vector<RunFacts>& runs) {
  std::map<std::string, std::set<double>> threads, cores;
  for (const RunFacts& run : runs) {
    if (run.threads) {
      threads[run.machine].insert(*run.threads);
    }
    if (run.worker_cores > 0) {
      cores[run.machine].insert(run.worker_cores);
    }
  }
  for (RunFacts& run : runs) {
    if (run.machine.empty()) {
      continue;
    }
    std::string name = run.machine;
    if (run.threads && threads[run.machine].size() > 1) {
      name += "-" + std::to_string(std::lround(*run.threads)) + "t";
    }
    if (run.worker_cores > 0 && cores[run.machine].size() > 1) {
      name += "-" + std::to_string(std::lround(run.worker_cores)) + "c";
    }
    if (name == run.machine) {
      continue;
    }
    const auto rename = [&run, &name](auto& parts) {
      for (auto& part : parts) {
        part.machine = part.machine == run.machine ? name : part.machine;
      }
    };
    rename(run.workers);
    rename(run.starts);
    rename(run.prices);
    run.remarks.push_back("runs have other numbers of threads or cores on " + run.machine +
                          ": its workers are called " + name);
    run.machine = name;
  }
}

}  // namespace

Result<std::vector<FittedRun>> fit_runs(std::vector<RunFacts> runs) {
  const Result<void> comparable = check_comparable(runs);
  if (!comparable.ok()) {
    return comparable.error();
  }
  name_by_size(runs);
  std::stable_sort(runs.begin(), runs.end(),
                   [](const RunFacts& a, const RunFacts& b) { return a.date > b.date; });
  std::vector<FittedRun> fitted;
  for (const RunFacts& run : runs) {
    fitted.push_back(RunReader(run).read());
  }
  return fitted;
}

std::vector<TableText> tables_of(const std::vector<FittedRun>& runs) {
  std::vector<TableSource> sources;
  for (const FittedRun& run : runs) {
    sources.push_back({&run.rows, {{"run_dir", run.name}, {"date", run.date}}});
  }
  return tables_of(sources);
}

}  // namespace mayfly::planner
