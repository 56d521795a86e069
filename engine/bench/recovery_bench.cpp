#include "engine/bench/recovery_bench.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <vector>

#include "base/random.hpp"
#include "engine/exit_codes.hpp"
#include "engine/local_launcher.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint64_t kQuietSteps = 5;  // between a change of view and the next kill

/// One kill: milliseconds from the signal to the end of each phase.
struct KillTimes {
  double detected = 0, told = 0, stopped = 0, formed = 0, synced = 0, step = 0;
};

struct Phase {
  const char* name;
  double KillTimes::*time;
};
constexpr std::array<Phase, 6> kPhases = {{{"detected", &KillTimes::detected},
                                           {"told", &KillTimes::told},
                                           {"stopped", &KillTimes::stopped},
                                           {"formed", &KillTimes::formed},
                                           {"synced", &KillTimes::synced},
                                           {"step", &KillTimes::step}}};

double percentile(std::vector<double> sorted, double fraction) {
  std::sort(sorted.begin(), sorted.end());
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(fraction * last + 0.5)];
}

/// Collects the times of steps; says nothing on the terminal.
class StepTimes final : public RunListener {
 public:
  void on_step(const StepMetric& metric, std::uint64_t) override {
    const std::lock_guard lock(mutex_);
    if (metric.images_per_second > 0) {
      step_ms_.push_back(1e3 * static_cast<double>(metric.samples) / metric.images_per_second);
    }
  }
  void on_event(const std::string&) override {}
  void on_summary(const Summary&) override {}
  [[nodiscard]] double median() const {
    const std::lock_guard lock(mutex_);
    return step_ms_.empty() ? 0 : percentile(step_ms_, 0.5);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<double> step_ms_;
};

/// Decides, at every poll of the launcher, whether to kill, to wait or to replace.
class KillDriver {
 public:
  explicit KillDriver(const RecoveryBenchOptions& options)
      : options_(options), random_(CounterRandom(options.job.seed).split("bench recovery")) {}

  void poll(LocalLauncher& launcher) {
    const std::vector<elastic::Recovery> recoveries =
        launcher.coordinator().recorder().recoveries();
    const std::uint64_t step = launcher.coordinator().recorder().last_step();
    if (killed_at_.has_value()) {
      take_result(recoveries, launcher);
    } else if (recoveries.size() != changes_seen_) {
      changes_seen_ = recoveries.size();
      kill_after_step_ = step + kQuietSteps;
      kill_at_ = {};
    } else if (step >= kill_after_step_ && step > 0 && is_complete(launcher)) {
      kill_in_a_while(launcher);
    }
  }

  [[nodiscard]] const std::vector<KillTimes>& results() const { return results_; }

 private:
  bool is_complete(LocalLauncher& launcher) const {
    const elastic::JobStatus status = launcher.coordinator().server().status();
    return status.phase == "running" && status.members.size() == options_.job.workers &&
           std::all_of(status.members.begin(), status.members.end(),
                       [](const elastic::MemberStatus& m) { return m.phase == "active"; });
  }

  void kill_in_a_while(LocalLauncher& launcher) {
    const Instant now = monotonic_now();
    if (kill_at_.ns == 0) {  // anywhere in the coming 200 ms, so in any phase of a step
      kill_at_ = now + Duration(static_cast<std::int64_t>(random_.unit() * 200e6));
    }
    if (now < kill_at_) {
      return;
    }
    const std::vector<std::size_t> running = launcher.running_workers();
    killed_at_ = monotonic_now();
    (void)launcher.signal_worker(running[random_.below(running.size())], SIGKILL);
  }

  void take_result(const std::vector<elastic::Recovery>& recoveries, LocalLauncher& launcher) {
    if (recoveries.size() == changes_seen_) {
      return;
    }
    changes_seen_ = recoveries.size();
    const elastic::Recovery& r = recoveries.back();
    const auto since = [this](Instant t) { return to_ms(t - *killed_at_); };
    results_.push_back({since(r.detected), since(r.told), since(r.stopped), since(r.formed),
                        since(r.synced), since(r.step)});
    killed_at_.reset();
    if (results_.size() == options_.kills) {
      launcher.coordinator().server().stop("enough kills");
    } else {
      kill_after_step_ = UINT64_MAX;  // until the replacement's join is complete
      (void)launcher.start_worker();
    }
  }

  const RecoveryBenchOptions& options_;
  RandomStream random_;
  std::size_t changes_seen_ = 0;
  std::uint64_t kill_after_step_ = kQuietSteps;
  Instant kill_at_;
  std::optional<Instant> killed_at_;
  std::vector<KillTimes> results_;
};

void print(const RecoveryBenchOptions& options, const std::vector<KillTimes>& results,
           double step_ms) {
  if (options.json) {
    for (const KillTimes& kill : results) {
      std::string fields;
      for (const Phase& phase : kPhases) {
        fields += fmt::format(R"({}"{}_ms":{:.3f})", fields.empty() ? "" : ",", phase.name,
                              kill.*phase.time);
      }
      fmt::print("{{{}}}\n", fields);
    }
  } else {
    fmt::print("{} kills of 1 of {} workers ({}, {}); ms since the kill\n", results.size(),
               options.job.workers, options.job.model, options.job.backend);
    fmt::print("{:<10}{:>9}{:>9}{:>9}\n", "phase", "p50", "p90", "max");
  }
  std::string percentiles;
  for (const Phase& phase : kPhases) {
    std::vector<double> times;
    for (const KillTimes& kill : results) {
      times.push_back(kill.*phase.time);
    }
    const double p50 = percentile(times, 0.5);
    const double p90 = percentile(times, 0.9);
    const double max = percentile(times, 1.0);
    if (!options.json) {
      fmt::print("{:<10}{:>9.1f}{:>9.1f}{:>9.1f}\n", phase.name, p50, p90, max);
    }
    percentiles += fmt::format(R"(,"{0}_p50_ms":{1:.3f},"{0}_p90_ms":{2:.3f},"{0}_max_ms":{3:.3f})",
                               phase.name, p50, p90, max);
  }
  if (options.json) {
    fmt::print(R"({{"kills":{},"workers":{},"model":"{}","backend":"{}",)"
               R"("undisturbed_step_p50_ms":{:.3f}{}}})"
               "\n",
               results.size(), options.job.workers, options.job.model, options.job.backend, step_ms,
               percentiles);
  } else {
    fmt::print("an undisturbed step takes {:.1f} ms (median)\n", step_ms);
  }
}

}  // namespace

int bench_recovery(const RecoveryBenchOptions& options) {
  StepTimes steps;
  KillDriver driver(options);
  LocalLauncher launcher(options.job, steps, {},
                         [&driver](LocalLauncher& running) { driver.poll(running); });
  const int code = launcher.run();
  if (driver.results().size() < options.kills) {
    fmt::print(stderr, "mayfly: the job ended after {} of {} kills (exit code {})\n",
               driver.results().size(), options.kills, code);
    return kExitFailed;
  }
  print(options, driver.results(), steps.median());
  return kExitDone;
}

}  // namespace mayfly::engine
