// `mayfly bench goodput`: a job on a spot market, which is replayed from a trace or consists of a
// kill every so many seconds, compared with a job that never waits.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/file.hpp"
#include "benchmarks/elastic/bench_output.hpp"
#include "benchmarks/elastic/elastic_bench.hpp"
#include "benchmarks/elastic/goodput_model.hpp"
#include "benchmarks/elastic/job_launcher.hpp"
#include "benchmarks/elastic/step_log.hpp"
#include "benchmarks/machine_facts.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

constexpr std::size_t kTraceBytesMax = std::size_t{64} << 20;

/// The records of both modes.
struct Market {
  StepLog steps;
  std::vector<AliveSince> alive;
  std::vector<elastic::Recovery> recoveries;
  Instant begin;  ///< instant of the first commit
  Instant end;

  /// Records the live workers and the changes of the job.
  void watch(engine::LocalLauncher& launcher) {
    recoveries = launcher.coordinator().recorder().progress().recoveries();
    const elastic::JobStatus status = launcher.coordinator().server().status();
    const auto loaded = static_cast<std::uint32_t>(std::count_if(
        status.members.begin(), status.members.end(), [](const elastic::MemberStatus& member) {
          return member.phase != elastic::MemberPhase::kLoading &&
                 member.phase != elastic::MemberPhase::kLeaving;
        }));
    const Instant now = monotonic_now();
    if (alive.empty() || alive.back().workers != loaded) {
      alive.push_back({now, loaded});
    }
    if (begin.ns == 0 && steps.last_step() > 0) {
      begin = now;
    }
    end = now;
  }
};

/// Kills the worker that has run for the longest.
bool kill_oldest(engine::LocalLauncher& launcher) {
  const std::vector<std::size_t> running = launcher.running_workers();
  return running.size() > 1 && launcher.signal_worker(running.front(), SIGKILL).ok();
}

/// Keeps the number of workers equal to that of the trace, played `speedup` times as fast.
class TracePlayer {
 public:
  TracePlayer(std::vector<SpotLevel> levels, double speedup, double minutes)
      : levels_(std::move(levels)), speedup_(speedup), minutes_(minutes) {}

  void poll(engine::LocalLauncher& launcher, Market& market) {
    market.watch(launcher);
    if (market.begin.ns == 0) {
      return;
    }
    const double seconds = to_seconds(monotonic_now() - market.begin);
    while (next_ < levels_.size() && at_seconds(next_) <= seconds) {
      go_to(launcher, levels_[next_++].nodes);
    }
    const bool played = next_ == levels_.size() && seconds > at_seconds(levels_.size() - 1) + 5;
    if (played || (minutes_ > 0 && seconds > 60 * minutes_)) {
      launcher.coordinator().server().stop("the trace is over");
    }
  }
  [[nodiscard]] std::size_t moments_played() const { return next_; }

 private:
  [[nodiscard]] double at_seconds(std::size_t level) const {
    return static_cast<double>(levels_[level].ms - levels_.front().ms) / 1e3 / speedup_;
  }
  void go_to(engine::LocalLauncher& launcher, std::uint32_t nodes) {
    std::vector<std::size_t> running = launcher.running_workers();
    // A large process may take long to end, so killed workers do not count.
    std::erase_if(running, [this](std::size_t number) { return killed_.count(number) != 0; });
    for (std::size_t n = running.size(); n < nodes; ++n) {
      (void)launcher.start_worker();
    }
    for (std::size_t i = 0; i + nodes < running.size(); ++i) {  // the oldest ones are killed
      killed_.insert(running[i]);
      (void)launcher.signal_worker(running[i], SIGKILL);
    }
  }

  std::vector<SpotLevel> levels_;
  double speedup_;
  double minutes_;
  std::set<std::size_t> killed_;
  std::size_t next_ = 1;  // the job starts with the first level
};

struct MarketStalls {
  Stalls losses;
  Stalls joins;
};

MarketStalls stalls_of(const Market& market, const std::vector<LoggedStep>& steps) {
  MarketStalls stalls;
  for (const elastic::Recovery& recovery : market.recoveries) {
    if (recovery.cause == elastic::ChangeCause::kLost ||
        recovery.cause == elastic::ChangeCause::kGroupFailed) {
      stalls.losses.add(stall_seconds(recovery, steps));
    } else if (recovery.cause == elastic::ChangeCause::kJoin) {
      stalls.joins.add(stall_seconds(recovery, steps));
    }
  }
  return stalls;
}

/// Samples committed between these two instants.
double committed_samples(const std::vector<LoggedStep>& steps, Instant begin, Instant end) {
  double samples = 0;
  for (const LoggedStep& step : steps) {
    samples += step.heard > begin && step.heard <= end ? static_cast<double>(step.samples) : 0;
  }
  return samples;
}

engine::json::object rates_json(const Rates& rates) {
  engine::json::object object;
  for (const auto& [members, rate] : rates.measured()) {
    object[std::to_string(members)] = engine::rounded(rate, 1);
  }
  return object;
}

/// With six digits; null = not measured.
engine::json::value number(std::optional<double> value) {
  return value ? engine::json::value(std::stod(fmt::format("{:.6g}", *value))) : nullptr;
}

std::optional<double> share(double part, double whole) {
  return whole > 0 ? std::optional(part / whole) : std::nullopt;
}

JsonFields fields_of(const std::string& kind, const std::string& kinds, const Stalls& stalls) {
  return {{kinds, stalls.count()},
          {kinds + "_unmeasured", stalls.unmeasured()},
          {kind + "_stall_mean_s", number(stalls.mean_seconds())},
          {kind + "_stall_p99_s", number(stalls.p99_seconds())}};
}

void append(JsonFields& fields, const JsonFields& more) {
  fields.insert(more.begin(), more.end());
}

void print_summary(const ElasticBenchOptions& options, const JsonFields& fields) {
  if (options.json) {
    fmt::print("{}\n{}", machine_line(""), summary_line(fields, {}));
    return;
  }
  for (const auto& [name, value] : fields) {
    fmt::print("{:<28}{}\n", std::string(name),
               value.is_null() ? "not measured" : engine::json_text(value));
  }
}

int play_trace(const ElasticBenchOptions& options) {
  const Result<std::string> text = read_text_file(options.trace, kTraceBytesMax);
  if (!text.ok()) {
    fmt::print(stderr, "mayfly: {}\n", text.error().detail);
    return engine::kExitUsage;
  }
  const Result<std::vector<SpotRow>> rows = parse_spot_trace(text.value());
  if (!rows.ok()) {
    fmt::print(stderr, "mayfly: {}: {}\n", options.trace, rows.error().detail);
    return engine::kExitUsage;
  }
  const std::vector<SpotLevel> natural = levels_of(rows.value());
  const std::vector<SpotLevel> levels = scaled(natural, options.nodes_max);
  ElasticBenchOptions job = options;
  job.job.workers = levels.front().nodes;
  Market market;
  TracePlayer player(levels, options.speedup, options.minutes);
  JobLauncher launcher(job.job, market.steps, {},
                       [&](engine::LocalLauncher& running) { player.poll(running, market); });
  const int code = launcher.run();
  if (code != engine::kExitStopped) {
    return ended_early(player.moments_played(), static_cast<std::uint32_t>(levels.size()), code);
  }
  const std::vector<LoggedStep> steps = market.steps.steps();
  const Rates rates(steps);
  const double ideal = ideal_samples(market.alive, rates, market.begin, market.end);
  const double done = committed_samples(steps, market.begin, market.end);
  const MarketStalls stalls = stalls_of(market, steps);
  JsonFields fields = job_facts(job);
  append(fields, {{"trace", options.trace},
                  {"speedup", number(options.speedup)},
                  {"nodes_max", options.nodes_max},
                  {"trace_moments", natural.size() - 1},
                  {"trace_hours",
                   number(static_cast<double>(natural.back().ms - natural.front().ms) / 3.6e6)},
                  {"moments_played", player.moments_played() - 1},
                  {"seconds", number(to_seconds(market.end - market.begin))},
                  {"samples", number(done)},
                  {"ideal_samples", number(ideal)},
                  {"goodput_as_played", number(share(done, ideal))}});
  append(fields, fields_of("loss", "losses", stalls.losses));
  append(fields, fields_of("join", "joins", stalls.joins));
  append(fields, {{"goodput_natural", number(natural_goodput(natural, stalls.losses.mean_seconds(),
                                                             stalls.joins.mean_seconds()))},
                  {"samples_per_second_by_members", rates_json(rates)}});
  print_summary(options, fields);
  return engine::kExitDone;
}

/// Runs the same job undisturbed up to a step, for its duration and its digests.
bool run_undisturbed(const ElasticBenchOptions& options, std::uint64_t last_step, Market& market) {
  engine::JobConfig job = options.job;
  job.run_dir += job.run_dir.empty() ? "" : "-undisturbed";
  JobLauncher launcher(job, market.steps, {}, [&](engine::LocalLauncher& running) {
    market.watch(running);
    if (market.steps.last_step() >= last_step) {
      running.coordinator().server().stop("as many steps");
    }
  });
  return launcher.run() == engine::kExitStopped;
}

/// The last step at which both runs recorded a digest: its number, and whether they are equal.
std::pair<std::uint64_t, bool> compare_digests(const std::vector<LoggedStep>& one,
                                               const std::vector<LoggedStep>& other) {
  std::map<std::uint64_t, std::string> digests;
  for (const LoggedStep& step : other) {
    if (!step.digest.empty()) {
      digests[step.step] = step.digest;
    }
  }
  std::pair<std::uint64_t, bool> last{0, false};
  for (const LoggedStep& step : one) {
    const auto same = digests.find(step.step);
    if (!step.digest.empty() && same != digests.end() && step.step > last.first) {
      last = {step.step, same->second == step.digest};
    }
  }
  return last;
}

/// Steps per second between the first commit and the last.
double steps_per_second(const std::vector<LoggedStep>& steps, std::uint64_t last_step) {
  const auto last = std::find_if(steps.begin(), steps.end(),
                                 [&](const LoggedStep& step) { return step.step == last_step; });
  if (last == steps.end() || last == steps.begin()) {
    return 0;
  }
  return static_cast<double>(last->step - steps.front().step) /
         to_seconds(last->heard - steps.front().heard);
}

int kill_again_and_again(const ElasticBenchOptions& options) {
  const double minutes = options.minutes > 0 ? options.minutes : 1;
  Market market;
  std::uint32_t kills = 0;
  JobLauncher launcher(options.job, market.steps, {}, [&](engine::LocalLauncher& running) {
    market.watch(running);
    const double seconds = market.begin.ns == 0 ? 0 : to_seconds(market.end - market.begin);
    if (seconds >= 60 * minutes) {
      running.coordinator().server().stop("time is up");
    } else if (seconds >= options.kill_every * (kills + 1) && kill_oldest(running)) {
      ++kills;
      (void)running.start_worker();
    }
  });
  if (const int code = launcher.run(); code != engine::kExitStopped) {
    return ended_early(kills, static_cast<std::uint32_t>(60 * minutes / options.kill_every), code);
  }
  const std::vector<LoggedStep> steps = market.steps.steps();
  const std::uint64_t last_step = market.steps.last_step();
  Market undisturbed;
  if (!run_undisturbed(options, last_step, undisturbed)) {
    return ended_early(kills, kills, engine::kExitFailed);
  }
  const std::vector<LoggedStep> usual = undisturbed.steps.steps();
  const auto [compared, equal] = compare_digests(steps, usual);
  const double rate = steps_per_second(steps, last_step);
  const double usual_rate = steps_per_second(usual, last_step);
  const MarketStalls stalls = stalls_of(market, steps);
  JsonFields fields = job_facts(options);
  append(fields, {{"kill_every_s", number(options.kill_every)},
                  {"minutes", number(minutes)},
                  {"kills", kills},
                  {"steps", last_step},
                  {"steps_per_second", number(rate)},
                  {"undisturbed_steps_per_second", number(usual_rate)},
                  {"goodput", number(share(rate, usual_rate))}});
  append(fields, fields_of("loss", "losses", stalls.losses));
  append(fields, fields_of("join", "joins", stalls.joins));
  append(fields, {{"digest_compared_at_step", compared}, {"digests_equal", equal}});
  print_summary(options, fields);
  return equal || options.job.reduction != "exact" ? engine::kExitDone : engine::kExitFailed;
}

}  // namespace

int bench_goodput(const ElasticBenchOptions& asked) {
  ElasticBenchOptions options = asked;
  const ScratchRun scratch(options.job);
  return options.kill_every > 0 ? kill_again_and_again(options) : play_trace(options);
}

}  // namespace mayfly::bench
