// `mayfly bench recovery`: a worker is lost, by SIGKILL, by SIGSTOP or with its network.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include "benchmarks/elastic/bench_output.hpp"
#include "benchmarks/elastic/elastic_bench.hpp"
#include "benchmarks/elastic/event_cycle.hpp"
#include "benchmarks/elastic/event_report.hpp"
#include "benchmarks/elastic/job_launcher.hpp"
#include "benchmarks/elastic/network_namespaces.hpp"
#include "benchmarks/elastic/step_log.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

/// Causes the fault and records its instant.
class LossBench {
 public:
  LossBench(const ElasticBenchOptions& options, NetworkNamespaces* spaces)
      : options_(options),
        spaces_(spaces),
        random_(CounterRandom(options.job.seed).split("victims")),
        cycle_(options.job.workers, options.events, options.job.seed,
               {[this](engine::LocalLauncher& l) { strike(l); },
                [this](engine::LocalLauncher&, const auto& changes) {
                  return is_over(first_loss(changes));
                },
                [this](engine::LocalLauncher& l) { restore(l); }}) {}

  int run() {
    JobLauncher launcher(options_.job, steps_, {},
                         [this](engine::LocalLauncher& running) { cycle_.poll(running); });
    if (spaces_ != nullptr) {
      launcher.on_start([this](std::size_t number, std::vector<std::string>& command) {
        return spaces_->move_in(number, command);
      });
    }
    return launcher.run();
  }

  [[nodiscard]] const std::vector<LossSeen>& losses() const { return losses_; }
  [[nodiscard]] std::vector<LoggedStep> steps() const { return steps_.steps(); }

 private:
  void strike(engine::LocalLauncher& launcher) {
    const std::vector<std::size_t> running = launcher.running_workers();
    victim_ = running[random_.below(running.size())];
    seen_ = LossSeen{};
    seen_.struck = monotonic_now();
    if (options_.fault == "vanish") {
      (void)spaces_->cut(victim_);
    } else {
      (void)launcher.signal_worker(victim_, options_.fault == "stop" ? SIGSTOP : SIGKILL);
    }
  }

  bool is_over(const std::optional<elastic::Recovery>& recovery) {
    if (!recovery.has_value()) {
      return false;
    }
    const std::optional<LoggedStep> before = last_before(steps_.steps(), seen_.struck);
    seen_.commit_before = before.has_value() ? before->heard : seen_.struck;
    seen_.step_before = before.has_value() ? Step{before->step} : recovery->committed;
    seen_.recovery = *recovery;
    losses_.push_back(seen_);
    return true;
  }

  void restore(engine::LocalLauncher& launcher) {
    (void)launcher.signal_worker(victim_, SIGKILL);  // it may still exist, stopped or cut off
    (void)launcher.start_worker();
  }

  const ElasticBenchOptions& options_;
  NetworkNamespaces* spaces_;  // null = none
  RandomStream random_;
  StepLog steps_;
  std::size_t victim_ = 0;
  LossSeen seen_;
  std::vector<LossSeen> losses_;
  EventCycle cycle_;
};

std::vector<EventSeries> series_of(const std::vector<LossSeen>& losses,
                                   const std::vector<LossTimes>& times) {
  struct Column {
    const char* name;
    double LossTimes::*time;
  };
  constexpr Column kColumns[] = {{"detected_ms", &LossTimes::detected_ms},
                                 {"told_ms", &LossTimes::told_ms},
                                 {"stopped_ms", &LossTimes::stopped_ms},
                                 {"formed_ms", &LossTimes::formed_ms},
                                 {"synced_ms", &LossTimes::synced_ms},
                                 {"step_ms", &LossTimes::step_ms},
                                 {"steps_meanwhile", &LossTimes::steps_meanwhile},
                                 {"still_needed_ms", &LossTimes::still_needed_ms},
                                 {"redo_ms", &LossTimes::redo_ms},
                                 {"beyond_ms", &LossTimes::beyond_ms}};
  std::vector<EventSeries> series;
  for (const Column& column : kColumns) {
    EventSeries each{column.name, {}};
    for (const LossTimes& one : times) {
      each.values.push_back(one.*column.time);
    }
    series.push_back(std::move(each));
  }
  EventSeries redone{"redone_microbatches", {}};
  for (const LossSeen& loss : losses) {
    redone.values.push_back(loss.recovery.redone_microbatches);
  }
  series.push_back(std::move(redone));
  return series;
}

/// The longest time that a microbatch can take, namely if undisturbed steps consist of nothing
/// else: the machine may have been busier while one microbatch was measured alone.
double most_microbatch_ms(const engine::JobConfig& job, const StepFacts& facts) {
  const std::uint32_t per_step = std::max(1U, job.global_batch / std::max(1U, job.microbatch));
  const std::uint32_t at_once = std::min(facts.cores, job.workers * facts.threads);
  return facts.undisturbed_ms * at_once / per_step;
}

/// Uses the steps around each loss: see undisturbed_near_ms.
std::vector<LossTimes> times_of_all(const std::vector<LossSeen>& losses,
                                    const std::vector<LoggedStep>& steps,
                                    const engine::JobConfig& job, const StepFacts& facts) {
  std::vector<LossTimes> times;
  for (const LossSeen& loss : losses) {
    StepFacts near = facts;
    near.undisturbed_ms = undisturbed_near_ms(steps, job.workers, value(loss.step_before));
    near.microbatch_ms = std::min(facts.microbatch_ms, most_microbatch_ms(job, near));
    times.push_back(times_of(loss, near));
  }
  return times;
}

int run_losses(const ElasticBenchOptions& options, NetworkNamespaces* spaces) {
  StepFacts facts;
  facts.microbatch_ms = measure_microbatch_ms(options.job);
  LossBench bench(options, spaces);
  const int code = bench.run();
  if (bench.losses().size() < options.events) {
    return ended_early(bench.losses().size(), options.events, code);
  }
  facts.undisturbed_ms = undisturbed_ms(bench.steps(), options.job.workers);
  facts.survivors = options.job.workers - 1;
  facts.threads = std::max(1U, options.job.threads);
  facts.cores = std::max(1U, std::thread::hardware_concurrency());
  JsonFields fields = job_facts(options);
  fields["fault"] = options.fault;
  fields["undisturbed_step_ms"] = engine::rounded(facts.undisturbed_ms, 3);
  fields["undisturbed_late_p99_ms"] =
      engine::rounded(undisturbed_late_ms(bench.steps(), options.job.workers, 0.99), 3);
  fields["microbatch_ms"] = engine::rounded(facts.microbatch_ms, 3);
  const std::string title = fmt::format(
      "{} of 1 of {} workers, {} times ({}, {}, {} MiB resident each); ms since the fault.\n"
      "An undisturbed step takes {:.1f} ms, a microbatch alone {:.1f} ms.",
      options.fault, options.job.workers, options.events, options.job.model, options.job.backend,
      options.job.resident_mib, facts.undisturbed_ms, facts.microbatch_ms);
  const std::vector<LossTimes> times =
      times_of_all(bench.losses(), bench.steps(), options.job, facts);
  print_events(options, title, fields, series_of(bench.losses(), times));
  return engine::kExitDone;
}

}  // namespace

int bench_recovery(const ElasticBenchOptions& asked) {
  ElasticBenchOptions options = asked;
  const ScratchRun scratch(options.job);
  if (options.fault != "vanish") {
    return run_losses(options, nullptr);
  }
  if (const std::string why = why_no_namespaces(); !why.empty()) {
    fmt::print(stderr, "mayfly: skipped: {}\n", why);
    return engine::kExitDone;
  }
  Result<NetworkNamespaces> spaces = NetworkNamespaces::make();
  if (!spaces.ok()) {
    fmt::print(stderr, "mayfly: {}\n", spaces.error().detail);
    return engine::kExitFailed;
  }
  options.job.bind_host = spaces.value().host_address();
  return run_losses(options, &spaces.value());
}

}  // namespace mayfly::bench
