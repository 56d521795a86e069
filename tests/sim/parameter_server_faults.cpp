// The faults of a simulated job with parameter servers, and the commands of its operator.

#include <algorithm>

#include "tests/sim/parameter_server_run.hpp"

namespace mayfly::sim {

using parameter_server::ShardEventKind;

Duration PsRun::some_moment() {
  return Duration(static_cast<std::int64_t>(
      random_.below(static_cast<std::uint64_t>(options_.faults_within.count()))));
}

void PsRun::plan_faults() {
  for (std::uint32_t i = 0; i < options_.kills; ++i) {
    queue_.after(some_moment(), [this] { kill_one(); });
  }
  for (std::uint32_t i = 0; i < options_.joins; ++i) {
    queue_.after(some_moment(), [this] {
      if (!members_ || !members_->has_ended()) {
        tell("a worker joins");
        add_worker();
      }
    });
  }
  for (std::uint32_t i = 0; i < options_.breaks; ++i) {
    queue_.after(some_moment(), [this] { break_one(); });
  }
  for (std::uint32_t i = 0; i < options_.server_kills + options_.zombies; ++i) {
    const bool dies = i < options_.server_kills;
    queue_.after(some_moment(),
                 [this, dies] { options_.colocated ? disown_one() : lose_server(dies); });
  }
  for (std::uint32_t i = 0; i < options_.holds; ++i) {
    queue_.after(some_moment(), [this] { hold(); });
  }
  std::vector<std::pair<Duration, Duration>> pauses;
  for (std::uint32_t i = 0; i < options_.pauses; ++i) {
    const Duration begin = some_moment();
    pauses.emplace_back(begin, std::chrono::microseconds(random_.below(8000)));
  }
  plan_pauses(pauses);
  for (std::uint32_t i = 0; i < options_.drains; ++i) {
    queue_.after(some_moment(), [this] { drain_one(); });
  }
}

void PsRun::plan_pauses(const std::vector<std::pair<Duration, Duration>>& pauses) {
  for (const auto& [begin, length] : pauses) {
    queue_.after(begin, [this] { members_->pause(true); });
    queue_.after(begin + length, [this] { members_->pause(false); });
  }
}

void PsRun::hold() {
  if (first_shard().is_alive) {
    (void)shards_.tell(0, shards_.leader_of(0), {.kind = ShardEventKind::kHold}, 0);
  }
  queue_.after(milliseconds(20), [this] {
    result_.quiet_moments += first_shard().core.leases()->is_quiet() ? 1 : 0;
    shards_.meet(0, shards_.leader_of(0));
  });
}

void PsRun::notice_cuts(const PsWorker& w) {
  for (const PsCut& cut : options_.cuts) {
    if (cut.worker == w.host) {
      const Instant from = std::max(queue_.now(), Instant{} + cut.from);
      queue_.after(from + options_.cut_noticed - queue_.now(), [this, id = w.id] { cut_off(id); });
    }
  }
}

/// Evicts a worker whose link is cut, after that was noticed.
void PsRun::cut_off(MemberId id) {
  PsWorker& w = worker(id);
  if (!w.alive || w.over) {
    return;
  }
  ++result_.cut_off;
  w.alive = false;
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    queue_.after(some_time(), [&w, s] { ++w.up[s].generation; });
  }
  roster_.erase(id);
  publish();
  queue_.after(options_.cut_joins_after, [this, host = w.host] {
    if (!first_is_over()) {
      add_worker_on(host);
    }
  });
}

/// Kills a worker. Its messages still arrive until a random moment, which differs between shards.
void PsRun::kill_one() {
  const std::vector<MemberId> ids = living();
  if (ids.size() < 2) {
    return;
  }
  PsWorker& victim = worker(ids[random_.below(ids.size())]);
  tell("worker " + std::to_string(value(victim.id)) + " dies");
  victim.alive = false;
  if (carries(victim)) {
    (void)shards_.lose(victim.number, true);
  }
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    queue_.after(some_time(), [&victim, s] { ++victim.up[s].generation; });
  }
  declare_lost_soon(victim, true);
}

/// Gives a worker a notice: it leaves at the end of a step.
void PsRun::drain_one() {
  const std::vector<MemberId> ids = living();
  if (ids.size() >= 2) {
    const MemberId leaver = ids[random_.below(ids.size())];
    tell("worker " + std::to_string(value(leaver)) + " is to leave");
    members_->drain(leaver);
  }
}

bool PsRun::carries(const PsWorker& w) const {
  return options_.colocated && w.number < options_.shards;
}

/// Excludes the worker, and the server that it runs, from the next view.
void PsRun::declare_lost_soon(PsWorker& victim, bool is_dead) {
  victim.is_given_up = true;
  if (members_) {
    members_->lose(victim.id, is_dead);
    replace_the_last();
    return;
  }
  queue_.after(std::chrono::microseconds(kPsLatencyUs + random_.below(5 * kPsLatencyUs)),
               [this, &victim] {
                 roster_.erase(victim.id);
                 if (carries(victim)) {
                   shards_.declare_lost(victim.number);
                 }
                 publish();
               });
}

/// Declares a worker and the server that it runs lost. They go on until they learn that.
void PsRun::disown_one() {
  const auto number = static_cast<std::uint32_t>(random_.below(options_.shards));
  const auto place = std::find_if(workers_.begin(), workers_.end(), [number](const auto& entry) {
    return entry.second->number == number;
  });
  PsWorker& victim = *place->second;
  const bool can_go = living().size() >= 2 && victim.alive && !victim.over;
  if (can_go && shards_.lose(victim.number, false)) {
    tell("worker " + std::to_string(value(victim.id)) + " is taken for dead");
    declare_lost_soon(victim, false);
    queue_.after(std::chrono::microseconds(kPsJobUs), [&victim] { victim.alive = false; });
  }
}

void PsRun::lose_server(bool dies) {
  const auto server = static_cast<std::uint32_t>(random_.below(options_.shards));
  if (living().empty() || !shards_.lose(server, dies)) {
    return;
  }
  tell("server " + std::to_string(server) + (dies ? " dies" : " is taken for dead"));
  if (members_) {
    members_->lose(servers_.at(server), dies);
    return;
  }
  queue_.after(std::chrono::microseconds(kPsLatencyUs + random_.below(5 * kPsLatencyUs)),
               [this, server] {
                 shards_.declare_lost(server);
                 publish();
               });
}

void PsRun::break_one() {
  const std::vector<MemberId> ids = living();
  if (ids.empty()) {
    return;
  }
  PsWorker& w = worker(ids[random_.below(ids.size())]);
  const auto shard = static_cast<std::uint32_t>(random_.below(options_.shards));
  if (w.has_met) {
    tell("worker " + std::to_string(value(w.id)) + " loses its connection to shard " +
         std::to_string(shard));
    connect_again(w, shard);
  }
}

}  // namespace mayfly::sim
