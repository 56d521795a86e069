#include "tests/sim/sim_world.hpp"

#include <algorithm>
#include <utility>

// The faults of the fault plan, and the launcher that replaces lost workers.

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kBeat = milliseconds(20);

}  // namespace

void SimWorld::every(Duration mean, std::function<void()> fault) {
  if (mean == Duration::zero()) {
    return;
  }
  queue_.after(milliseconds(1) + draw_delay(2 * mean), [this, mean, fault = std::move(fault)] {
    if (queue_.now() - Instant{} < scenario_.faults.faults_end) {
      fault();
      every(mean, fault);
    }
  });
}

void SimWorld::start_faults_of_workers() {
  const FaultPlan& plan = scenario_.faults;
  const auto at_somebody = [this](Duration mean, std::function<void(SimWorker&)> what) {
    every(mean, [this, what = std::move(what)] {
      if (const auto index = pick_living()) {
        what(*workers_[*index]);
      }
    });
  };
  at_somebody(plan.crash_every, [](SimWorker& worker) { worker.die(false); });
  at_somebody(plan.vanish_every, [](SimWorker& worker) { worker.die(true); });
  at_somebody(plan.freeze_every,
              [this](SimWorker& worker) { stand_still(worker.index(), Standstill::kStopped); });
  at_somebody(plan.halt_every,
              [this](SimWorker& worker) { stand_still(worker.index(), Standstill::kFrozen); });
  at_somebody(plan.starve_every,
              [this](SimWorker& worker) { stand_still(worker.index(), Standstill::kStarved); });
  at_somebody(plan.speed_change_every, [this](SimWorker& worker) {
    const auto factor = static_cast<std::int64_t>(1 + random_.below(kSlowestFactor));
    worker.set_microbatch_time(scenario_.microbatch_time * factor);
    rebalance_checker_.on_speed_change();
    budget_checker_.on_event();
  });
  at_somebody(plan.corrupt_every, [this](SimWorker& worker) {
    if (worker.id()) {
      disturbed();
      worker.flip_a_bit();
    }
  });
  at_somebody(plan.notice_every, [this](SimWorker& worker) {
    budget_checker_.on_event();
    worker.on_leave_asked();
  });
  at_somebody(plan.drain_every, [this](SimWorker& worker) {
    if (worker.id()) {
      budget_checker_.on_event();
      give(coordinator_event::DrainAsked{*worker.id(), "drill"});
    }
  });
  at_somebody(plan.fail_alone_every, [this](SimWorker& worker) {
    if (worker.fails_alone()) {
      failed_alone_.insert(worker.index());
      disturbed();
      tell("fails_alone", worker.id(), "");
    }
  });
}

void SimWorld::start_faults() {
  const FaultPlan& plan = scenario_.faults;
  start_faults_of_workers();
  if (plan.stop_after > Duration::zero()) {
    queue_.after(plan.stop_after, [this] { stop_the_job(); });
  }
  if (plan.fail_after > Duration::zero()) {
    queue_.after(plan.fail_after, [this] {
      is_fail_asked_ = true;
      give(coordinator_event::FailAsked{"loss is not finite"});
    });
  }
  every(plan.bad_link_every, [this] { break_a_link(); });
  every(plan.join_every, [this] {
    if (living().size() < 8) {
      add_worker();
    }
  });
  every(plan.mass_loss_every, [this] { lose_many(); });
  every(plan.coordinator_stall_every, [this] {
    stalled_since_ = queue_.now() < stalled_until_ ? stalled_since_ : queue_.now();
    stalled_until_ =
        std::max(stalled_until_, queue_.now() + draw_delay(scenario_.faults.stall_max));
    disturbed();
    pace_checker_.on_fault(stalled_until_);
  });
  every(plan.missed_sum_every, [this] { next_sum_is_missed_ = true; });
  every(plan.repeat_every, [this] { repeat_a_message(); });
  every(plan.pause_every, [this] {
    disturbed();
    give(coordinator_event::PauseAsked{true});
    queue_.after(draw_delay(scenario_.faults.pause_max), [this] {
      disturbed();
      give(coordinator_event::PauseAsked{false});
    });
  });
  keep_enough_workers();
}

/// Kills workers in the same instant, each with the same probability, which may be one.
void SimWorld::lose_many() {
  const std::uint64_t of_ten = 3 + random_.below(8);
  for (const std::size_t index : living()) {
    if (random_.below(10) < of_ten) {
      workers_[index]->die(random_.below(4) == 0);
    }
  }
}

void SimWorld::stop_the_job() {
  disturbed();
  tell("stop", std::nullopt, "");
  liveness_.on_stop_asked(std::max(queue_.now(), Instant{} + scenario_.faults.faults_end),
                          seconds(30));
  give(coordinator_event::StopAsked{"an operator"});
}

/// Sends an earlier message of a worker again, as after a reconnection or in a replay attack.
/// Connections keep their order, but an old message may arrive a second time.
void SimWorld::repeat_a_message() {
  const auto index = pick_living();
  if (!index || sent_[*index].empty() || !connections_[*index].open || !workers_[*index]->id()) {
    return;
  }
  const Message& old = sent_[*index][random_.below(sent_[*index].size())];
  give(coordinator_event::Received{*workers_[*index]->id(), old});
}

/// Starts replacements: late while there are faults, and always after them.
void SimWorld::keep_enough_workers() {
  const bool is_calm = queue_.now() - Instant{} >= scenario_.faults.faults_end;
  const std::size_t wanted = std::max(scenario_.initial_workers, scenario_.min_workers);
  const std::size_t have = living().size();
  if (have < wanted && (is_calm || random_.below(4) == 0)) {
    add_worker();
  }
  queue_.after(milliseconds(100), [this] { keep_enough_workers(); });
}

void SimWorld::maybe_crash_on_view(const View& view) {
  if (!scenario_.faults.crash_on_view || random_.below(3) != 0 ||
      queue_.now() - Instant{} >= scenario_.faults.faults_end) {
    return;
  }
  const MemberId victim = view.members[random_.below(view.members.size())].id;
  at_worker(victim, draw_delay(milliseconds(30)), [](SimWorker& worker) { worker.die(false); });
}

void SimWorld::maybe_crash_at_end(const View& view) {
  if (scenario_.faults.crash_on_view && random_.below(3) != 0 &&
      queue_.now() - Instant{} < scenario_.faults.faults_end) {
    const MemberId victim = view.members[random_.below(view.members.size())].id;
    at_worker(victim, draw_delay(milliseconds(20)), [](SimWorker& worker) { worker.die(false); });
  }
}

void SimWorld::break_a_link() {
  const auto first = pick_living();
  const auto second = pick_living();
  if (first && second && *first != *second && workers_[*first]->id() && workers_[*second]->id()) {
    disturbed();
    tell("bad_link", *workers_[*first]->id(),
         "to " + std::to_string(value(*workers_[*second]->id())));
    bad_links_.emplace_back(*workers_[*first]->id(), *workers_[*second]->id());
    if (!groups_.empty()) {
      groups_.rbegin()->second->cut(bad_links_.back().first, bad_links_.back().second);
    }
  }
}

std::optional<MemberId> SimWorld::bad_partner(MemberId member, const View& view) const {
  const auto is_in_view = [&view](MemberId id) {
    return std::any_of(view.members.begin(), view.members.end(),
                       [id](const ViewMember& m) { return m.id == id; });
  };
  for (const auto& [one, other] : bad_links_) {
    if (member == one && is_in_view(other)) {
      return other;
    }
    if (member == other && is_in_view(one)) {
      return one;
    }
  }
  return std::nullopt;
}

std::vector<std::size_t> SimWorld::living() const {
  std::vector<std::size_t> alive;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i]->alive()) {
      alive.push_back(i);
    }
  }
  return alive;
}

std::optional<std::size_t> SimWorld::pick_living() {
  const std::vector<std::size_t> alive = living();
  return alive.empty() ? std::nullopt : std::optional(alive[random_.below(alive.size())]);
}

// The machines of workers: clocks that drift, sentinels with separate connections, suspended
// processes and machines.

/// Draws a clock. It may have started long before; the fault plan limits its drift.
SimClock SimWorld::draw_clock() {
  const auto most = static_cast<std::int64_t>(scenario_.faults.clock_drift_per_mille);
  if (most == 0) {
    return {};
  }
  const auto width = static_cast<std::uint64_t>(2 * most + 1);
  const auto gain = static_cast<std::int64_t>(random_.below(width)) - most;
  return {draw_delay(seconds(3600)), gain};
}

void SimWorld::beat(std::size_t index) {
  at_index(index, clock_of(index).real(kBeat), [this, index](SimWorker& worker) {
    worker.heartbeat();
    beat(index);
  });
}

// --- sentinels

/// Sends an event of a sentinel to the coordinator. A sentinel's events keep their order among
/// themselves, but not relative to the messages of its worker.
template <typename Event>
void SimWorld::from_sentinel(std::size_t index, Event event) {
  const Duration delay = in_order(connections_[index].last_of_sentinel,
                                  draw_delay(scenario_.faults.sentinel_delay_max));
  queue_.after(delay, [this, index, event = std::move(event)] {
    if (connections_[index].open) {
      give(event);
    }
  });
}

void SimWorld::beat_of_sentinel(std::size_t index) {
  const Duration rest = machines_[index].sentinel_still_until - queue_.now();
  queue_.after(std::max(rest, clock_of(index).real(kBeat)), [this, index] {
    const SimWorker& worker = *workers_[index];
    if (!worker.alive() || !connections_[index].open) {
      return;
    }
    if (machines_[index].sentinel_still_until <= queue_.now() && worker.id()) {
      const bool is_stopped = worker.frozen_until() > queue_.now();
      from_sentinel(index, coordinator_event::SentinelBeat{*worker.id(), {}, is_stopped});
    }
    beat_of_sentinel(index);
  });
}

void SimWorld::worker_died(std::size_t index, bool silently) {
  if (!workers_[index]->has_left()) {
    disturbed();
  }
  if (const auto id = workers_[index]->id()) {
    commit_checker_.on_died(*id);
  }
  if (scenario_.faults.restart_at_once && queue_.now() - Instant{} < scenario_.faults.faults_end &&
      living().size() < scenario_.initial_workers) {
    queue_.after(draw_delay(milliseconds(10)), [this] { add_worker(); });
  }
  const auto id = workers_[index]->id();
  if (silently || !id) {
    return;
  }
  // The sentinel reports the death, unless it is dead, too. The kernel closes the socket later.
  const Machine& machine = machines_[index];
  const auto until = [this](Instant when) {
    return std::max(when - queue_.now(), Duration::zero());
  };
  if (random_.below(4) != 0) {
    queue_.after(until(machine.sentinel_still_until), [this, index, member = *id] {
      from_sentinel(index, coordinator_event::SentinelReport{member, "killed", true, {}});
    });
  }
  const Duration closing = until(machine.deaf_until) + draw_delay(milliseconds(250));
  queue_.after(in_order(connections_[index].last_up, closing), [this, index, member = *id] {
    if (std::exchange(connections_[index].open, false)) {
      give(coordinator_event::ConnectionLost{member, "end of file"});
    }
  });
}

// --- machines

/// The kernel of a host acknowledges packets even if its processes are suspended.
void SimWorld::probe(MemberId member) {
  if (scenario_.sabotage == Sabotage::kForgetsToProbe) {
    return;
  }
  const Duration there = draw_delay(scenario_.faults.message_delay_max);
  const Duration back = draw_delay(scenario_.faults.message_delay_max);
  const std::size_t index = worker_of_.at(member);
  queue_.after(there, [this, index, member, back] {
    if (workers_[index]->alive() && machines_[index].deaf_until <= queue_.now()) {
      queue_.after(back, [this, member] { give(coordinator_event::HostAnswers{member}); });
    }
  });
}

void SimWorld::stand_still(std::size_t index, Standstill kind) {
  const Instant until = queue_.now() + draw_delay(scenario_.faults.freeze_max);
  disturbed();
  pace_checker_.on_fault(until);
  workers_[index]->freeze_until(until);
  Machine& machine = machines_[index];
  if (kind != Standstill::kStopped) {
    machine.sentinel_still_until = std::max(machine.sentinel_still_until, until);
  }
  if (kind == Standstill::kFrozen) {
    machine.deaf_until = std::max(machine.deaf_until, until);
  }
  const Instant deaf_since = queue_.now() < stalled_until_ ? stalled_since_ : queue_.now();
  suspicion_checker_.on_standstill(index, kind, queue_.now(), until, deaf_since);
}

void SimWorld::suspected(MemberId member) {
  const std::size_t index = worker_of_.at(member);
  if (workers_[index]->alive()) {
    suspicion_checker_.on_believed(index, queue_.now(), stalled_until_);
  }
}

}  // namespace mayfly::sim
