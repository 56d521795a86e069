#include <algorithm>
#include <utility>

#include "tests/sim/sim_world.hpp"

// What workers run on: clocks that drift, sentinels with connections of their own, processes and
// machines that stand still.

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kBeat = milliseconds(20);

}  // namespace

/// Any clock may have started long ago; how far it drifts is up to the plan.
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

/// In the order in which it says it; nothing connects that with what its worker says.
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
  // Its sentinel tells, unless that is gone, too; the kernel takes its time to close the socket.
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

/// The kernel acknowledges what comes, whether or not anybody reads it.
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
