// `mayfly bench detect`: how soon a fault is detected, and whether anything else is taken for a
// fault.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "benchmarks/elastic/bench_output.hpp"
#include "benchmarks/elastic/elastic_bench.hpp"
#include "benchmarks/elastic/event_cycle.hpp"
#include "benchmarks/elastic/job_launcher.hpp"
#include "benchmarks/elastic/step_log.hpp"
#include "benchmarks/machine_facts.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

struct Detection {
  Instant struck;
  Instant reported;  ///< for a hang: instant of the line that names the worker
  elastic::Recovery recovery;
};

/// Sends SIGKILL or SIGSTOP again and again in one job.
std::vector<Detection> detect_signals(const ElasticBenchOptions& options, int& code) {
  StepLog steps;
  RandomStream random{CounterRandom(options.job.seed).split("victims")};
  std::vector<Detection> found;
  std::size_t victim = 0;
  Instant struck;
  EventCycle cycle(options.job.workers, options.events, options.job.seed,
                   {[&](engine::LocalLauncher& launcher) {
                      const std::vector<std::size_t> running = launcher.running_workers();
                      victim = running[random.below(running.size())];
                      struck = monotonic_now();
                      (void)launcher.signal_worker(victim,
                                                   options.fault == "stop" ? SIGSTOP : SIGKILL);
                    },
                    [&](engine::LocalLauncher&, const std::vector<elastic::Recovery>& changes) {
                      const std::optional<elastic::Recovery> recovery = first_loss(changes);
                      if (recovery.has_value()) {
                        found.push_back({struck, recovery->detected, *recovery});
                      }
                      return recovery.has_value();
                    },
                    [&](engine::LocalLauncher& launcher) {
                      (void)launcher.signal_worker(victim, SIGKILL);
                      (void)launcher.start_worker();
                    }});
  JobLauncher launcher(options.job, steps, {},
                       [&cycle](engine::LocalLauncher& running) { cycle.poll(running); });
  code = launcher.run();
  return found;
}

/// A worker hangs in a microbatch: once per job, because the fault is set when the worker starts.
std::vector<Detection> detect_hangs(const ElasticBenchOptions& options, int& code) {
  std::vector<Detection> found;
  for (std::uint32_t i = 0; i < options.events; ++i) {
    ElasticBenchOptions one = options;
    one.job.run_dir += options.job.run_dir.empty() ? "" : fmt::format("/{}", i);
    StepLog steps;
    std::optional<Detection> detection;
    engine::ChaosEvent hang;
    hang.kind = engine::ChaosKind::kHang;
    hang.step = options.hang_step;
    hang.worker = i % options.job.workers;
    hang.for_ms = 600'000;
    JobLauncher launcher(one.job, steps, {hang}, [&](engine::LocalLauncher& running) {
      const auto loss = first_loss(running.coordinator().recorder().progress().recoveries());
      const auto lines = steps.lines("stalled");
      if (detection.has_value() || !loss.has_value() || lines.empty()) {
        return;
      }
      for (const LoggedStep& step : steps.steps()) {
        if (step.step == options.hang_step) {
          detection = Detection{step.heard, lines.front().first, *loss};
        }
      }
      running.coordinator().server().stop("seen");
    });
    code = launcher.run();
    if (!detection.has_value()) {
      return found;
    }
    found.push_back(*detection);
  }
  return found;
}

int print_detections(const ElasticBenchOptions& options, const std::vector<Detection>& found) {
  std::vector<EventSeries> series = {
      {"reported_ms", {}}, {"detected_ms", {}}, {"told_ms", {}}, {"stopped_ms", {}}};
  for (const Detection& each : found) {
    const auto since = [&each](Instant when) { return to_ms(when - each.struck); };
    const elastic::Recovery& r = each.recovery;
    const double values[] = {since(each.reported), since(r.detected), since(r.told),
                             since(r.stopped)};
    for (std::size_t i = 0; i < series.size(); ++i) {
      series[i].values.push_back(values[i]);
    }
  }
  JsonFields fields = job_facts(options);
  fields["fault"] = options.fault;
  if (options.fault == "hang") {
    fields["hang_step"] = options.hang_step;
  }
  fields["silence_max_ms"] = options.job.silence_max_ms;
  const std::string title = fmt::format("{} of 1 of {} workers, {} times; ms since the fault",
                                        options.fault, options.job.workers, options.events);
  print_events(options, title, fields, series);
  return engine::kExitDone;
}

/// Threads that only keep cores busy.
class BusyThreads {
 public:
  explicit BusyThreads(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (!over_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyThreads() {
    over_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  BusyThreads(const BusyThreads&) = delete;
  BusyThreads& operator=(const BusyThreads&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

/// Causes no fault, so every eviction is wrong.
int count_false_evictions(const ElasticBenchOptions& options) {
  const double minutes = options.minutes > 0 ? options.minutes : 1;
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  const auto wanted = static_cast<std::uint32_t>(options.oversubscribe * cores);
  const std::uint32_t own = options.job.workers * std::max(1U, options.job.threads);
  StepLog steps;
  double silent_max_ms = 0;
  std::size_t evictions = 0;
  std::uint64_t last_step = 0;
  int code = engine::kExitDone;
  {
    const BusyThreads busy(wanted > own ? wanted - own : 0);
    const Instant end = monotonic_now() + Duration(static_cast<std::int64_t>(minutes * 60e9));
    JobLauncher launcher(options.job, steps, {}, [&](engine::LocalLauncher& running) {
      for (const elastic::MemberStatus& member : running.coordinator().server().status().members) {
        silent_max_ms = std::max(silent_max_ms, member.silent_ms);
      }
      const auto recoveries = running.coordinator().recorder().progress().recoveries();
      evictions = static_cast<std::size_t>(
          std::count_if(recoveries.begin(), recoveries.end(), [](const elastic::Recovery& r) {
            return r.cause == elastic::ChangeCause::kLost ||
                   r.cause == elastic::ChangeCause::kGroupFailed;
          }));
      last_step = running.coordinator().recorder().progress().last_step();
      if (monotonic_now() >= end) {
        running.coordinator().server().stop("time is up");
      }
    });
    code = launcher.run();
  }
  if (code != engine::kExitStopped) {
    return ended_early(0, 0, code);
  }
  JsonFields fields = job_facts(options);
  fields["minutes"] = minutes;
  fields["oversubscribe"] = options.oversubscribe;
  fields["silence_max_ms"] = options.job.silence_max_ms;
  fields["steps"] = last_step;
  fields["false_evictions"] = evictions;
  fields["stall_reports"] = steps.lines("stalled").size();
  fields["longest_silence_ms"] = engine::rounded(silent_max_ms, 3);
  if (options.json) {
    fmt::print("{}\n{}", machine_line(""), summary_line(fields, {}));
  } else {
    fmt::print(
        "{:g} minutes, {} workers and {:g} busy threads per core: {} false evictions, {} reports "
        "of "
        "a stall, longest silence {:.0f} ms, {} steps\n",
        minutes, options.job.workers, options.oversubscribe, evictions,
        steps.lines("stalled").size(), silent_max_ms, last_step);
  }
  return evictions == 0 ? engine::kExitDone : engine::kExitFailed;
}

}  // namespace

int bench_detect(const ElasticBenchOptions& asked) {
  ElasticBenchOptions options = asked;
  const ScratchRun scratch(options.job);
  if (options.oversubscribe > 0) {
    return count_false_evictions(options);
  }
  int code = engine::kExitDone;
  const std::vector<Detection> found =
      options.fault == "hang" ? detect_hangs(options, code) : detect_signals(options, code);
  if (found.size() < options.events) {
    return ended_early(found.size(), options.events, code);
  }
  return print_detections(options, found);
}

}  // namespace mayfly::bench
