#include "tests/sim/parameter_server_scenario.hpp"

#include <algorithm>
#include <array>

namespace mayfly::sim {
namespace {

using parameter_server::StragglerPolicy;

constexpr std::array kPhases = {"bsp",
                                "asp",
                                "ssp:0",
                                "ssp:1",
                                "ssp:3",
                                "bsp:25%,asp",
                                "asp",
                                "ssp:1:40%,bsp",
                                "asp:30%,bsp:30%,ssp:2",
                                "bsp",
                                "bsp:20%,asp:40%,bsp"};
/// Phases with backup workers, which need a job with one shard.
constexpr std::array kWithBackup = {"backup:3-of-4", "bsp:50%,backup:3-of-4",
                                    "asp:30%,backup:3-of-4:30%,bsp",
                                    "backup:3-of-4:40%,ssp:1:20%,backup:3-of-4"};
constexpr std::uint32_t kBackupNeeds = 3;
constexpr std::array kThatMayDiverge = {"bsp:30%,asp", "bsp:30%,ssp:2"};

class Draw {
 public:
  explicit Draw(std::uint64_t seed)
      : random_(CounterRandom(seed).split("parameter server scenario")) {}

  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(random_.below(bound));
  }
  bool once_in(std::uint32_t count) { return below(count) == 0; }
  template <typename List>
  const char* one_of(const List& list) {
    return list[random_.below(list.size())];
  }
  Duration time(Duration bound) {
    return Duration(
        static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(bound.count()))));
  }

 private:
  RandomStream random_;
};

void draw_job(Draw& draw, PsOptions& options) {
  options.steps = 6 + draw.below(25);
  options.workers = 1 + draw.below(6);
  options.shards = 1 + draw.below(4);
  options.jitter = draw.once_in(2) ? 0.5 : 0.1;
  if (draw.once_in(3)) {
    options.phases = draw.one_of(kWithBackup);
    options.shards = 1;
    options.slices_per_step = kBackupNeeds * (1 + draw.below(2));
    return;
  }
  options.phases = draw.one_of(kPhases);
  options.slices_per_step = 1 + draw.below(8);
  if (draw.once_in(8)) {
    options.phases = draw.one_of(kThatMayDiverge);
    options.slices_per_step = 4;
    options.steps = 40;
    options.falls_back = true;
    options.diverges_from = 12 * 4 + draw.below(100);
    options.rest_steps =
        draw.once_in(2) ? std::set<std::uint64_t>{18, 24, 30, 36} : std::set<std::uint64_t>{};
  }
}

void draw_servers(Draw& draw, PsOptions& options) {
  options.followers = options.shards > 1 && !draw.once_in(3);
  options.colocated = options.followers && draw.once_in(3);
  options.workers = options.colocated ? options.shards : options.workers;
}

void draw_speeds(Draw& draw, PsOptions& options) {
  if (draw.once_in(2)) {
    options.slow[draw.below(options.workers)] = 2 + draw.below(3);
  }
  if (!draw.once_in(5) || options.falls_back) {
    return;
  }
  options.stragglers = draw.once_in(2) ? StragglerPolicy::kGreedy : StragglerPolicy::kElastic;
  options.steps = 60;
  options.slices_per_step = 12;
  const std::uint64_t slices = std::uint64_t{options.steps} * options.slices_per_step;
  options.slow_from = draw.below(static_cast<std::uint32_t>(slices / 4));
  options.slow_to = slices * 3 / 4;
}

/// The likely duration of the job.
Duration likely_length(const PsOptions& options) {
  const std::uint64_t slices = std::uint64_t{options.steps} * options.slices_per_step;
  const std::uint64_t rounds = slices / std::min(options.workers, options.slices_per_step);
  return milliseconds(static_cast<std::int64_t>(4 + rounds * 5 / 4));
}

void draw_faults(Draw& draw, PsOptions& options) {
  options.faults_within = likely_length(options);
  options.joins = draw.once_in(2) ? draw.below(4) : 0;
  options.drains = draw.once_in(3) ? 1 + draw.below(2) : 0;
  options.pauses = draw.once_in(2) ? draw.below(4) : 0;
  if (draw.once_in(6)) {
    options.stop_at = draw.time(options.faults_within);
  }
  options.stop_timeout =
      draw.once_in(5) ? milliseconds(1) + draw.time(milliseconds(20)) : seconds(10);
  if (draw.once_in(3)) {
    return;  // only planned changes
  }
  options.kills = draw.below(4);
  options.breaks = draw.below(5);
  if (options.followers) {
    const bool dies = draw.once_in(2) && !options.colocated;
    (dies ? options.server_kills : options.zombies) = draw.below(2);
  }
}

std::string named(const char* name, std::uint64_t count) {
  return count == 0 ? std::string() : ", " + std::to_string(count) + " " + name;
}

}  // namespace

PsOptions draw_parameter_server(std::uint64_t seed) {
  Draw draw(seed);
  PsOptions options;
  options.seed = seed;
  options.coordinated = true;
  draw_job(draw, options);
  draw_servers(draw, options);
  draw_speeds(draw, options);
  for (std::uint32_t i = draw.below(3); i > 0; --i) {
    options.snapshot_steps.insert(1 + draw.below(options.steps));
  }
  draw_faults(draw, options);
  return options;
}

std::string describe(const PsOptions& o) {
  std::string text = "seed " + std::to_string(o.seed) + ": " + o.phases + ", " +
                     std::to_string(o.steps) + " steps of " + std::to_string(o.slices_per_step) +
                     " slices, " + std::to_string(o.workers) + " workers, " +
                     std::to_string(o.shards) + " shards" + (o.followers ? " with followers" : "") +
                     (o.colocated ? ", colocated" : "");
  for (const auto& [number, factor] : o.slow) {
    text += ", worker " + std::to_string(number) + " " + std::to_string(static_cast<int>(factor)) +
            " times slower";
  }
  text += o.stragglers == StragglerPolicy::kGreedy    ? ", greedy"
          : o.stragglers == StragglerPolicy::kElastic ? ", elastic"
                                                      : "";
  text += named("snapshots", o.snapshot_steps.size()) + named("kills", o.kills) +
          named("joins", o.joins) + named("broken connections", o.breaks) +
          named("servers killed", o.server_kills) + named("taken for dead", o.zombies) +
          named("drains", o.drains) + named("pauses", o.pauses + o.pauses_at.size()) +
          (o.falls_back ? ", diverges" : "");
  if (o.stop_at) {
    text += ", stop after " + std::to_string(to_ms(*o.stop_at)) + " ms";
  }
  if (o.coordinated && o.stop_timeout < seconds(1)) {
    text += ", stop_timeout " + std::to_string(to_ms(o.stop_timeout)) + " ms";
  }
  return text;
}

}  // namespace mayfly::sim
