#include "tests/sim/fault_plan.hpp"

#include "base/check.hpp"
#include "base/random.hpp"

namespace mayfly::sim {
namespace {

/// Half of all runs have this kind of fault, with a mean interval between the bounds.
Duration draw_interval(RandomStream& random, Duration least, Duration most) {
  const bool exists = random.below(2) == 0;
  const auto width = static_cast<std::uint64_t>((most - least).count());
  const Duration interval = least + Duration(static_cast<std::int64_t>(random.below(width)));
  return exists ? interval : Duration::zero();
}

FaultPlan draw_faults(RandomStream& random) {
  FaultPlan plan;
  plan.crash_every = draw_interval(random, milliseconds(60), seconds(2));
  plan.vanish_every = draw_interval(random, milliseconds(400), seconds(4));
  plan.freeze_every = draw_interval(random, milliseconds(200), seconds(3));
  plan.bad_link_every = draw_interval(random, milliseconds(500), seconds(4));
  plan.join_every = draw_interval(random, milliseconds(60), seconds(1));
  plan.drain_every = draw_interval(random, milliseconds(150), seconds(2));
  plan.notice_every = draw_interval(random, milliseconds(150), seconds(2));
  plan.pause_every = draw_interval(random, milliseconds(500), seconds(4));
  plan.speed_change_every = draw_interval(random, milliseconds(400), seconds(4));
  plan.mass_loss_every = draw_interval(random, milliseconds(700), seconds(6));
  plan.coordinator_stall_every = draw_interval(random, milliseconds(500), seconds(4));
  plan.repeat_every = draw_interval(random, milliseconds(5), milliseconds(500));
  plan.restart_at_once = random.below(3) == 0;
  plan.crash_on_view = random.below(3) == 0;
  plan.slow_members = random.below(2) == 0;
  const bool delays = random.below(3) == 0;
  plan.message_delay_max = delays ? milliseconds(150) : milliseconds(2);
  plan.break_delay_max = random.below(2) == 0 ? milliseconds(5) : milliseconds(200);
  const Duration corrupt_every = draw_interval(random, milliseconds(300), seconds(4));
  plan.corrupt_every = random.below(2) == 0 ? corrupt_every : Duration::zero();
  return plan;
}

/// Faults of machines; half of all runs have each kind.
void draw_machines(RandomStream& random, FaultPlan& plan) {
  plan.halt_every = draw_interval(random, milliseconds(300), seconds(4));
  plan.starve_every = draw_interval(random, milliseconds(200), seconds(3));
  const auto drift = static_cast<std::uint32_t>(1 + random.below(100));
  plan.clock_drift_per_mille = random.below(2) == 0 ? drift : 0;
  plan.sentinel_delay_max = random.below(2) == 0 ? milliseconds(2) : milliseconds(400);
}

/// Keeps only planned joins and leaves and the speeds of workers; there are no faults.
void keep_planned_changes(FaultPlan& plan) {
  FaultPlan kept;
  kept.join_every = plan.join_every;
  kept.drain_every = plan.drain_every;
  kept.notice_every = plan.notice_every;
  kept.slow_members = plan.slow_members;
  kept.speed_change_every = plan.speed_change_every;
  plan = kept;
}

const char* name_of(ExchangeKind kind) {
  switch (kind) {
    case ExchangeKind::kRing: return "ring";
    case ExchangeKind::kDoubling: return "doubling";
    case ExchangeKind::kOneShot: return "one-shot";
    case ExchangeKind::kTwoShot: return "two-shot";
  }
  UNREACHABLE("every kind of exchange has a name");
}

}  // namespace

std::string ms(const char* name, Duration time) {
  return time == Duration::zero()
             ? std::string()
             : std::string(" ") + name + '=' + std::to_string(static_cast<long>(to_ms(time)));
}

const std::vector<Sabotage>& all_sabotages() {
  static const std::vector<Sabotage> all = {Sabotage::kKeepsStaleSums,
                                            Sabotage::kWorksOnOldWeights,
                                            Sabotage::kIgnoresFirstStep,
                                            Sabotage::kReducesTooEarly,
                                            Sabotage::kSkipsSync,
                                            Sabotage::kLosesViews,
                                            Sabotage::kSkipsAnObservedSum,
                                            Sabotage::kIgnoresDifferences,
                                            Sabotage::kStopsBeforeCancelling,
                                            Sabotage::kForgetsToProbe,
                                            Sabotage::kBelievesCopies};
  return all;
}

const char* name_of(Sabotage sabotage) {
  switch (sabotage) {
    case Sabotage::kNone: return "none";
    case Sabotage::kKeepsStaleSums: return "keeps-stale-sums";
    case Sabotage::kWorksOnOldWeights: return "works-on-old-weights";
    case Sabotage::kIgnoresFirstStep: return "ignores-first-step";
    case Sabotage::kReducesTooEarly: return "reduces-too-early";
    case Sabotage::kSkipsSync: return "skips-sync";
    case Sabotage::kLosesViews: return "loses-views";
    case Sabotage::kSkipsAnObservedSum: return "skips-an-observed-sum";
    case Sabotage::kIgnoresDifferences: return "ignores-differences";
    case Sabotage::kStopsBeforeCancelling: return "stops-before-cancelling";
    case Sabotage::kForgetsToProbe: return "forgets-to-probe";
    case Sabotage::kBelievesCopies: return "believes-copies";
  }
  UNREACHABLE("every sabotage has a name");
}

Scenario draw_first_scenario(std::uint64_t seed) {
  RandomStream random{CounterRandom(seed).split("scenario")};
  Scenario scenario;
  scenario.seed = seed;
  scenario.initial_workers = static_cast<std::uint32_t>(1 + random.below(6));
  scenario.min_workers = random.below(3) == 0 ? scenario.initial_workers / 2 + 1 : 1;
  scenario.microbatches = static_cast<std::uint32_t>(1 + random.below(12));
  scenario.microbatch_size = static_cast<std::uint32_t>(1 + random.below(3));
  scenario.samples = 1 + random.below(150);
  scenario.exchange = static_cast<ExchangeKind>(random.below(4));
  scenario.buckets = 1 + random.below(3);
  scenario.steps = 30 + random.below(250);
  scenario.microbatch_time = milliseconds(1 + static_cast<std::int64_t>(random.below(12)));
  scenario.faults = draw_faults(random);
  if (random.below(3) == 0) {
    scenario.view_max = scenario.initial_workers + static_cast<std::uint32_t>(random.below(2));
  }
  scenario.state_bytes = random.below(2);
  scenario.delta_from_members = random.below(2) == 0 ? 1 : 32;
  draw_machines(random, scenario.faults);
  scenario.faults.missed_sum_every = draw_interval(random, milliseconds(50), seconds(1));
  if (random.below(12) == 0) {
    keep_planned_changes(scenario.faults);
  }
  return scenario;
}

Scenario draw_scenario(std::uint64_t seed) {
  Scenario scenario = draw_first_scenario(seed);
  RandomStream random{CounterRandom(seed).split("later scenario")};
  FaultPlan& plan = scenario.faults;
  if (random.below(4) == 0) {
    plan.fail_alone_every = draw_interval(random, milliseconds(100), seconds(3));
  }
  const auto some_time = [&random] {
    return milliseconds(1 + static_cast<std::int64_t>(random.below(4000)));
  };
  plan.stop_after = random.below(8) == 0 ? some_time() : Duration::zero();
  plan.fail_after = random.below(32) == 0 ? some_time() : Duration::zero();
  if (random.below(2) == 0) {
    plan.end_takes = milliseconds(5 + static_cast<std::int64_t>(random.below(300)));
  }
  plan.drains_stragglers = random.below(4) == 0;
  if (random.below(16) == 0) {  // so many that a MicrobatchSet needs more than one word
    scenario.microbatches = static_cast<std::uint32_t>(60 + random.below(80));
    scenario.microbatch_time = milliseconds(1);
    scenario.steps = 20 + random.below(20);
  }
  return scenario;
}

std::string describe(const Scenario& s) {
  const FaultPlan& f = s.faults;
  return "seed " + std::to_string(s.seed) + ": " + std::to_string(s.initial_workers) +
         " workers, at least " + std::to_string(s.min_workers) + ", at most " +
         std::to_string(s.view_max) + ", " + std::to_string(s.microbatches) + " microbatches of " +
         std::to_string(s.microbatch_size) + ", " + std::to_string(s.samples) + " samples, " +
         std::to_string(s.buckets) + " buckets by " + name_of(s.exchange) + ", " +
         std::to_string(s.steps) + " steps" + (s.state_bytes > 0 ? ", joiners observe" : "") +
         "; milliseconds between" + ms("crash", f.crash_every) + ms("vanish", f.vanish_every) +
         ms("freeze", f.freeze_every) + ms("halt", f.halt_every) + ms("starve", f.starve_every) +
         ms("bad_link", f.bad_link_every) + ms("join", f.join_every) + ms("drain", f.drain_every) +
         ms("notice", f.notice_every) + ms("pause", f.pause_every) +
         ms("speed_change", f.speed_change_every) + ms("mass_loss", f.mass_loss_every) +
         ms("coordinator_stall", f.coordinator_stall_every) + ms("repeat", f.repeat_every) +
         ms("corrupt", f.corrupt_every) + ms("missed_sum", f.missed_sum_every) +
         ms("fail_alone", f.fail_alone_every) + (f.drains_stragglers ? " drains_stragglers" : "") +
         (f.restart_at_once ? " restart_at_once" : "") + (f.crash_on_view ? " crash_on_view" : "") +
         (f.slow_members ? " slow_members" : "") + "; delays" + ms("message", f.message_delay_max) +
         ms("sentinel", f.sentinel_delay_max) + ms("break", f.break_delay_max) +
         ms("end", f.end_takes) +
         (f.stop_after + f.fail_after > Duration::zero() ? "; after" : "") +
         ms("stop", f.stop_after) + ms("fail", f.fail_after) +
         (f.clock_drift_per_mille == 0
              ? std::string()
              : "; clocks drift by " + std::to_string(f.clock_drift_per_mille) + " per mille");
}

}  // namespace mayfly::sim
