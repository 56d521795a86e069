// `mayfly bench join`: a worker joins; measures the cost for the other members. `mayfly bench
// drain`: a worker is asked to leave.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "base/statistics.hpp"
#include "benchmarks/elastic/bench_output.hpp"
#include "benchmarks/elastic/elastic_bench.hpp"
#include "benchmarks/elastic/event_cycle.hpp"
#include "benchmarks/elastic/job_launcher.hpp"
#include "benchmarks/elastic/network_namespaces.hpp"
#include "benchmarks/elastic/step_log.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

constexpr std::uint64_t kStepsAfter = 2;   // of the first with its work that count as its cost
constexpr std::uint64_t kSteadySteps = 8;  // steps after these, for comparison

struct JoinSeen {
  Instant requested;
  elastic::Join join;
};

class JoinBench {
 public:
  /// `core`: a core of the joining worker's own, or nothing.
  JoinBench(const ElasticBenchOptions& options, const std::optional<OwnCore>& core)
      : options_(options),
        core_(core),
        cycle_(options.job.workers, options.events, options.job.seed,
               {[this](engine::LocalLauncher& l) { strike(l); },
                [this](engine::LocalLauncher& l, const auto&) { return is_over(l); },
                [](engine::LocalLauncher& l) {  // the newest worker leaves again
                  (void)l.signal_worker(l.running_workers().back(), SIGTERM);
                }}) {}

  int run() {
    JobLauncher launcher(options_.job, steps_, {},
                         [this](engine::LocalLauncher& running) { cycle_.poll(running); });
    launcher.on_start([this](std::size_t number, std::vector<std::string>& command) {
      if (core_.has_value() && number >= options_.job.workers) {
        core_->move_in(command);
      }
      return Result<void>();
    });
    return launcher.run();
  }
  [[nodiscard]] const std::vector<JoinSeen>& joins() const { return joins_; }
  [[nodiscard]] std::vector<LoggedStep> steps() const { return steps_.steps(); }

 private:
  void strike(engine::LocalLauncher& launcher) {
    joins_before_ = launcher.coordinator().recorder().progress().joins().size();
    requested_ = monotonic_now();
    if (const Result<std::size_t> started = launcher.start_worker(); !started.ok()) {
      fmt::print(stderr, "mayfly: {}\n", started.error().detail);
      launcher.coordinator().server().fail(started.error().detail);  // no worker would ever join
    }
  }
  /// True some steps after the joiner's first step, when its cost and the time of undisturbed steps
  /// with all workers can be measured.
  bool is_over(engine::LocalLauncher& launcher) {
    const std::vector<elastic::Join> joins = launcher.coordinator().recorder().progress().joins();
    if (joins.size() == joins_before_ ||
        steps_.last_step() < value(joins.back().started_after) + kStepsAfter + kSteadySteps) {
      return false;
    }
    joins_.push_back({requested_, joins.back()});
    return true;
  }

  const ElasticBenchOptions& options_;
  const std::optional<OwnCore>& core_;
  StepLog steps_;
  std::size_t joins_before_ = 0;
  Instant requested_;
  std::vector<JoinSeen> joins_;
  EventCycle cycle_;
};

/// How much longer the steps around the admission took than undisturbed steps with as many workers
/// with work.
struct JoinCost {
  double total_ms = 0;
  double before_ms = 0;  ///< the part in the step whose end admitted the joiner, which was starting
};

JoinCost cost_of(const elastic::Join& join, const std::vector<LoggedStep>& steps, double without_ms,
                 double with_ms) {
  JoinCost cost;
  for (const LoggedStep& step : steps) {
    const bool counts = step.step >= value(join.admitted_after) &&
                        step.step <= value(join.started_after) + kStepsAfter;
    if (counts && step.ms > 0) {
      const double beyond =
          step.ms - (step.step <= value(join.started_after) ? without_ms : with_ms);
      cost.total_ms += beyond;
      cost.before_ms += step.step == value(join.admitted_after) ? beyond : 0;
    }
  }
  return cost;
}

/// How much longer as many steps take than undisturbed ones when nothing happens, from the steps
/// after the join: steps are late more often than early, so it is not zero. This is the noise in
/// cost_of().
double steady_ms(const elastic::Join& join, const std::vector<LoggedStep>& steps, double with_ms) {
  const std::uint64_t settled = value(join.started_after) + kStepsAfter;
  double beyond = 0;
  std::size_t found = 0;
  for (const LoggedStep& step : steps) {
    if (step.step > settled && step.step <= settled + kSteadySteps && step.ms > 0) {
      beyond += step.ms - with_ms;
      ++found;
    }
  }
  const auto counted = static_cast<double>(settled - value(join.admitted_after) + 1);
  return found == 0 ? 0 : beyond / static_cast<double>(found) * counted;
}

/// True if the step was made while a joiner started and was not admitted yet.
bool is_beside(const LoggedStep& step, const JoinSeen& seen) {
  return step.heard > seen.requested && step.step <= value(seen.join.admitted_after);
}

/// The steps during which no joiner started, from which undisturbed steps are taken.
std::vector<LoggedStep> beside_none(const std::vector<JoinSeen>& joins,
                                    const std::vector<LoggedStep>& steps) {
  std::vector<LoggedStep> found;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(found), [&](const auto& step) {
    return std::none_of(joins.begin(), joins.end(),
                        [&step](const JoinSeen& seen) { return is_beside(step, seen); });
  });
  return found;
}

/// How much longer the steps during its start took than undisturbed ones, without the last one,
/// which cost_of() contains.
double start_cost_ms(const JoinSeen& seen, const std::vector<LoggedStep>& steps,
                     double without_ms) {
  double beyond = 0;
  for (const LoggedStep& step : steps) {
    const bool is_last = step.step == value(seen.join.admitted_after);
    beyond += is_beside(step, seen) && !is_last && step.ms > 0 ? step.ms - without_ms : 0;
  }
  return beyond;
}

std::vector<EventSeries> series_of(const std::vector<JoinSeen>& joins,
                                   const std::vector<LoggedStep>& steps, std::uint32_t workers) {
  const std::vector<LoggedStep> calm = beside_none(joins, steps);
  struct Column {
    const char* name;
    Instant elastic::Join::*when;
  };
  constexpr Column kColumns[] = {
      {"connected_ms", &elastic::Join::connected}, {"ready_ms", &elastic::Join::ready},
      {"admitted_ms", &elastic::Join::admitted},   {"caught_up_ms", &elastic::Join::caught_up},
      {"promoted_ms", &elastic::Join::promoted},   {"step_ms", &elastic::Join::step}};
  std::vector<EventSeries> series;
  for (const Column& column : kColumns) {
    EventSeries each{column.name, {}};
    for (const JoinSeen& seen : joins) {
      each.values.push_back(to_ms(seen.join.*column.when - seen.requested));
    }
    series.push_back(std::move(each));
  }
  EventSeries cost{"incumbents_cost_ms", {}};
  EventSeries percent{"incumbents_cost_percent", {}};
  EventSeries start{"start_cost_ms", {}};
  EventSeries before{"cost_before_ms", {}};
  EventSeries steady{"steady_cost_ms", {}};
  for (const JoinSeen& seen : joins) {
    const std::uint64_t when = value(seen.join.started_after);
    const double without_ms = undisturbed_near_ms(calm, workers, when);
    const double with_ms = undisturbed_near_ms(calm, workers + 1, when);
    const JoinCost found = cost_of(seen.join, steps, without_ms, with_ms);
    start.values.push_back(start_cost_ms(seen, steps, without_ms));
    before.values.push_back(found.before_ms);
    cost.values.push_back(found.total_ms);
    percent.values.push_back(without_ms > 0 ? 100 * cost.values.back() / without_ms : 0);
    steady.values.push_back(steady_ms(seen.join, steps, with_ms));
  }
  series.push_back(std::move(start));
  series.push_back(std::move(before));
  series.push_back(std::move(steady));
  series.push_back(std::move(cost));
  series.push_back(std::move(percent));
  return series;
}

struct DrainSeen {
  Instant asked;
  Instant gone;
  elastic::Recovery recovery;
};

class DrainBench {
 public:
  explicit DrainBench(const ElasticBenchOptions& options)
      : options_(options),
        random_(CounterRandom(options.job.seed).split("victims")),
        cycle_(options.job.workers, options.events, options.job.seed,
               {[this](engine::LocalLauncher& l) { strike(l); },
                [this](engine::LocalLauncher& l, const auto& changes) {
                  return is_over(l, first_with_cause(changes, elastic::ChangeCause::kLeave));
                },
                [](engine::LocalLauncher& l) { (void)l.start_worker(); }}) {}

  int run() {
    JobLauncher launcher(options_.job, steps_, {},
                         [this](engine::LocalLauncher& running) { cycle_.poll(running); });
    return launcher.run();
  }
  [[nodiscard]] const std::vector<DrainSeen>& drains() const { return drains_; }
  [[nodiscard]] std::vector<LoggedStep> steps() const { return steps_.steps(); }

 private:
  void strike(engine::LocalLauncher& launcher) {
    const std::vector<std::size_t> running = launcher.running_workers();
    victim_ = running[random_.below(running.size())];
    seen_ = DrainSeen{};
    seen_.asked = monotonic_now();
    (void)launcher.signal_worker(victim_, SIGTERM);
  }
  bool is_over(engine::LocalLauncher& launcher, const std::optional<elastic::Recovery>& recovery) {
    const std::vector<std::size_t> running = launcher.running_workers();
    const bool runs = std::find(running.begin(), running.end(), victim_) != running.end();
    if (!runs && seen_.gone.ns == 0) {
      seen_.gone = monotonic_now();
    }
    if (runs || !recovery.has_value()) {
      return false;
    }
    seen_.recovery = *recovery;
    drains_.push_back(seen_);
    return true;
  }

  const ElasticBenchOptions& options_;
  RandomStream random_;
  StepLog steps_;
  std::size_t victim_ = 0;
  DrainSeen seen_;
  std::vector<DrainSeen> drains_;
  EventCycle cycle_;
};

std::vector<EventSeries> series_of(const std::vector<DrainSeen>& drains,
                                   const std::vector<LoggedStep>& steps, std::uint32_t left) {
  std::vector<EventSeries> series = {
      {"told_ms", {}}, {"stopped_ms", {}},         {"formed_ms", {}},          {"step_ms", {}},
      {"gone_ms", {}}, {"next_step_delay_ms", {}}, {"redone_microbatches", {}}};
  for (const DrainSeen& seen : drains) {
    const elastic::Recovery& r = seen.recovery;
    const auto since = [&seen](Instant when) { return to_ms(when - seen.asked); };
    const auto first = std::find_if(steps.begin(), steps.end(), [&r](const LoggedStep& step) {
      return step.view == value(r.new_view);
    });
    const double delay =
        first == steps.end() ? 0 : first->ms - undisturbed_near_ms(steps, left, first->step);
    const double values[] = {since(r.told),
                             since(r.stopped),
                             since(r.formed),
                             since(r.step),
                             since(seen.gone),
                             delay,
                             static_cast<double>(r.redone_microbatches)};
    for (std::size_t i = 0; i < series.size(); ++i) {
      series[i].values.push_back(values[i]);
    }
  }
  return series;
}

}  // namespace

int bench_join(const ElasticBenchOptions& asked) {
  ElasticBenchOptions options = asked;
  std::optional<OwnCore> core;
  if (options.own_core) {
    Result<OwnCore> reserved = OwnCore::reserve();
    if (!reserved.ok()) {
      fmt::print(stderr, "mayfly: {}\n", reserved.error().detail);
      return engine::kExitUsage;
    }
    core.emplace(std::move(reserved.value()));
  }
  const ScratchRun scratch(options.job);
  JoinBench bench(options, core);
  const int code = bench.run();
  if (bench.joins().size() < options.events) {
    return ended_early(bench.joins().size(), options.events, code);
  }
  const std::vector<LoggedStep> steps = bench.steps();
  const std::vector<LoggedStep> calm = beside_none(bench.joins(), steps);
  const double without_ms = undisturbed_ms(calm, options.job.workers);
  const double with_ms = undisturbed_ms(calm, options.job.workers + 1);
  JsonFields fields = job_facts(options);
  fields["own_core"] = options.own_core;
  fields["undisturbed_step_ms"] = engine::rounded(without_ms, 3);
  fields["undisturbed_step_with_joiner_ms"] = engine::rounded(with_ms, 3);
  const std::string title = fmt::format(
      "a worker {}joins {}, {} times ({}, {}); ms since it was asked for.\n"
      "An undisturbed step takes {:.1f} ms without and {:.1f} ms with it.",
      options.own_core ? "with a core of its own " : "", options.job.workers, options.events,
      options.job.model, options.job.backend, without_ms, with_ms);
  print_events(options, title, fields, series_of(bench.joins(), steps, options.job.workers));
  return engine::kExitDone;
}

int bench_drain(const ElasticBenchOptions& asked) {
  ElasticBenchOptions options = asked;
  const ScratchRun scratch(options.job);
  DrainBench bench(options);
  const int code = bench.run();
  if (bench.drains().size() < options.events) {
    return ended_early(bench.drains().size(), options.events, code);
  }
  const std::vector<LoggedStep> steps = bench.steps();
  const double without_ms = undisturbed_ms(steps, options.job.workers - 1);
  JsonFields fields = job_facts(options);
  fields["undisturbed_step_without_it_ms"] = engine::rounded(without_ms, 3);
  fields["undisturbed_late_p99_ms"] =
      engine::rounded(undisturbed_late_ms(steps, options.job.workers, 0.99), 3);
  const std::string title = fmt::format(
      "SIGTERM to 1 of {} workers, {} times ({}, {}); ms since the signal.\n"
      "An undisturbed step of the others takes {:.1f} ms.",
      options.job.workers, options.events, options.job.model, options.job.backend, without_ms);
  const std::vector<EventSeries> series = series_of(bench.drains(), steps, options.job.workers - 1);
  print_events(options, title, fields, series);
  if (percentile(series.back().values, 1) > 0) {
    fmt::print(stderr, "mayfly: a planned leave made others compute something again\n");
    return engine::kExitFailed;
  }
  return engine::kExitDone;
}

}  // namespace mayfly::bench
