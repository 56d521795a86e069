#include "tests/sim/parameter_server_world.hpp"

#include <algorithm>
#include <utility>

#include "tests/sim/parameter_server_replica.hpp"
#include "tests/sim/parameter_server_run.hpp"

namespace mayfly::sim {

using parameter_server::FlowAction;
using parameter_server::Grants;
using parameter_server::PushFate;
using parameter_server::ShardEvent;
using parameter_server::ShardEventKind;
using namespace parameter_server::flow;

namespace {

constexpr Duration kBound = seconds(60);
constexpr std::uint64_t kRecordUs = 3000;  // longest time of recording a state

}  // namespace

PsRun::PsRun(const PsOptions& options)
    : options_(options),
      random_(CounterRandom(options.seed).split("parameter server")),
      plan_(plan_of(loosened(options))),
      shards_(options_, plan_, queue_, random_,
              {[this](const Grants& grants) { deliver(grants); },
               [this](std::uint32_t s, const std::map<MemberId, std::uint64_t>& questions,
                      std::uint64_t version,
                      std::uint64_t model) { answer(s, questions, version, model); },
               [this](std::uint32_t s) { took_over(s); }}) {}

PsResult PsRun::run() {
  if (options_.coordinated) {
    members_.emplace(options_, queue_, random_, member_hooks());
  }
  for (std::uint32_t i = 0; i < options_.workers; ++i) {
    add_worker();
  }
  if (members_) {  // faults begin with the first view
    add_servers();
    plan_pauses(options_.pauses_at);
    if (options_.stop_at) {
      queue_.after(*options_.stop_at, [this] { members_->stop(); });
    }
  } else {
    plan_faults();
  }
  while (!result_.torn && queue_.run_one() && queue_.now() < Instant{} + kBound) {
    check_quiet();
    if (result_.over == Duration{} && first_is_over()) {
      result_.over = queue_.now() - Instant{};
    }
  }
  return finish();
}

Duration PsRun::some_time() {
  return std::chrono::microseconds(random_.below(kPsLatencyUs));
}

void PsRun::tell(std::string line) {
  if (members_) {
    result_.history.push_back(std::to_string(to_ms(queue_.now() - Instant{})) +
                              " ms: " + std::move(line));
  }
}

/// Sends a message to the leader of a shard. It arrives unless the connection breaks before.
void PsRun::send_up(PsWorker& from, std::uint32_t s, std::function<void()> message) {
  PsLane& lane = from.up[s];
  lane.last = std::max(lane.last, queue_.now() + some_time());
  const MemberId id = from.id;
  queue_.after(lane.last - queue_.now(),
               [this, id, s, i = from.leader[s], generation = lane.generation,
                message = std::move(message)] {
                 if (worker(id).up[s].generation == generation && shards_.at(s, i).is_alive &&
                     !is_lost(options_, worker(id), s, true, queue_.now())) {
                   shards_.take(id, s, i, message);
                 }
               });
}

void PsRun::send_down(MemberId id, std::uint32_t s, std::function<void(PsWorker&)> message) {
  PsLane& lane = worker(id).down[s];
  lane.last = std::max(lane.last, queue_.now() + some_time());
  queue_.after(lane.last - queue_.now(),
               [this, id, s, generation = lane.generation, message = std::move(message)] {
                 PsWorker& to = worker(id);
                 if (to.alive && to.down[s].generation == generation &&
                     !is_lost(options_, to, s, false, queue_.now())) {
                   message(to);
                   act(to);
                 }
               });
}

void PsRun::hello(PsWorker& from, std::uint32_t s) {
  ShardEvent event{.kind = ShardEventKind::kConnected, .serial = from.flow.received()};
  event.rewind = from.flow.rewind();
  event.push.worker = from.id;
  send_up(from, s, [this, s, i = from.leader[s], event] {
    (void)shards_.tell(s, i, event, 0);
    send_down(event.push.worker, s, [this, s](PsWorker& to) {
      to.flow.welcomed(s);
      to.let_in = to.let_in || s == 0;
      greet_first(to);
    });
  });
}

void PsRun::deliver(const Grants& grants) {
  for (const auto& [id, lease] : grants) {
    note_lease(id, lease);
    worker(id).granted = std::max(worker(id).granted, lease.serial);
    send_down(id, 0, [lease = lease](PsWorker& to) { to.flow.granted(lease); });
  }
}

/// Counts leases that other workers get while a worker that could compute them has none.
void PsRun::note_neglect(MemberId given) {
  const bool is_for_all = options_.stragglers != parameter_server::StragglerPolicy::kElastic &&
                          roster_.size() <= options_.slices_per_step;
  for (const auto& [id, w] : workers_) {
    const bool idles = is_for_all && w->alive && !w->over && w->let_in && !w->computes &&
                       roster_.contains(id) && w->flow.received() == w->granted &&
                       w->flow.done_through() == w->granted;
    w->missed = idles && id != given ? w->missed + 1 : 0;
    result_.neglect_max = std::max(result_.neglect_max, w->missed);
  }
}

void PsRun::note_lease(MemberId id, const parameter_server::Lease& lease) {
  if (lease.kind == parameter_server::LeaseKind::kCompute) {
    note_neglect(id);
  }
  if (!first_shard().core.leases()->shows_speeds()) {
    speeds_->forget_leases();
  } else if (lease.kind == parameter_server::LeaseKind::kCompute) {
    speeds_->leased(queue_.now(), id, lease.serial, lease.count);
  } else if (lease.kind == parameter_server::LeaseKind::kProbe) {
    ++result_.probes;
    speeds_->probed(queue_.now(), id, lease.count);
  }
}

void PsRun::follow_stragglers(std::uint32_t i) {
  const auto changes = speeds_->take_changes();
  if (options_.stragglers == parameter_server::StragglerPolicy::kNone || changes.empty()) {
    return;
  }
  result_.straggler_changes.insert(result_.straggler_changes.end(), changes.begin(), changes.end());
  (void)shards_.tell(0, i,
                     {.kind = ShardEventKind::kStragglers, .stragglers = speeds_->stragglers()}, 0);
}

void PsRun::answer(std::uint32_t s, const std::map<MemberId, std::uint64_t>& questions,
                   std::uint64_t version, std::uint64_t model) {
  for (const auto& [id, question] : questions) {
    send_down(id, s, [s, question = question, version, model](PsWorker& to) {
      if (to.flow.expects(s, question)) {
        to.fresh[s] = model;
        to.flow.answered(s, version);
      }
    });
  }
}

/// Carries out the actions of the worker's flow until it has to wait or to compute.
void PsRun::act(PsWorker& w) {
  while (w.alive && !w.computes && !w.over && !result_.torn) {
    const FlowAction action = w.flow.next();
    if (std::holds_alternative<parameter_server::flow::Wait>(action)) {
      return;
    }
    if (const auto* pull = std::get_if<Pull>(&action)) {
      send_pull(w, *pull);
    } else if (const auto* adopt = std::get_if<Adopt>(&action)) {
      for (const std::uint32_t s : adopt->shards) {
        w.held[s] = w.fresh[s];
      }
    } else if (const auto* compute = std::get_if<Compute>(&action)) {
      begin(w, compute->slice, 1,
            [this, compute = Compute(*compute)](PsWorker& done) { send_push(done, compute); });
    } else if (const auto* probe = std::get_if<Probe>(&action)) {
      begin(w, probe->first, probe->count, [](PsWorker&) {});
    } else if (const auto* snapshot = std::get_if<Snapshot>(&action)) {
      if (!record(w, *snapshot)) {
        return;
      }
    } else if (std::holds_alternative<Rest>(action)) {
      send_rest(w);
    } else {
      w.over = true;
      for (std::uint32_t s = 0; s < options_.shards && members_; ++s) {
        say_bye(w, s);
      }
      if (members_) {
        members_->finished(w.id);
      }
    }
  }
}

void PsRun::send_pull(PsWorker& w, const Pull& pull) {
  for (const std::uint32_t s : pull.shards) {
    ShardEvent event{.kind = ShardEventKind::kPull};
    event.rewind = w.flow.rewind();
    event.push.worker = w.id;
    event.push.clock = pull.clock;
    event.push.wanted = pull.version;
    send_up(w, s, [this, s, i = w.leader[s], event, question = pull.question] {
      shards_.at(s, i).questions[event.push.worker] = question;
      (void)shards_.tell(s, i, event, 0);
    });
  }
}

std::uint64_t PsRun::confirmed(const PsWorker& w) const {
  return options_.sabotage == PsSabotage::kConfirmsEarly ? w.flow.received()
                                                         : w.flow.done_through();
}

void PsRun::send_rest(PsWorker& w) {
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    if (is_neglected(w) && s == 0) {
      continue;
    }
    ShardEvent event{.kind = ShardEventKind::kRest, .serial = confirmed(w)};
    event.rewind = w.flow.rewind();
    event.push.worker = w.id;
    send_up(w, s, [this, s, i = w.leader[s], event] {
      if (s == 0) {
        speeds_->probe_done(queue_.now(), event.push.worker);
      }
      (void)shards_.tell(s, i, event, 0);
      if (s == 0) {
        follow_stragglers(i);
      }
    });
  }
}

void PsRun::begin(PsWorker& w, std::uint64_t slice, std::uint32_t count,
                  std::function<void(PsWorker&)> then) {
  w.computes = true;
  const bool is_slow =
      options_.slow.contains(w.number) && slice >= options_.slow_from && slice < options_.slow_to;
  const double factor = is_slow ? options_.slow.at(w.number) : 1;
  const double took =
      kPsSliceUs * count * factor * (1 + options_.jitter * (2 * random_.unit() - 1));
  queue_.after(std::chrono::microseconds(static_cast<std::uint64_t>(took)),
               [this, id = w.id, then = std::move(then)] {
                 PsWorker& done = worker(id);
                 if (done.alive) {
                   done.computes = false;
                   then(done);
                   act(done);
                 }
               });
}

void PsRun::send_push(PsWorker& w, const Compute& compute) {
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    ShardEvent event{.kind = ShardEventKind::kPush, .serial = confirmed(w)};
    event.rewind = w.flow.rewind();
    event.loss = loss_of(options_, plan_for(plan_, w), compute.slice);
    event.microbatches = 1;
    event.push.worker = w.id;
    event.push.slice = compute.slice;
    event.push.base_version = w.flow.version(s);
    event.push.clock = compute.clock;
    event.push.at_once = compute.at_once;
    event.wants_lease = compute.wants_lease && s == 0 && !is_neglected(w);
    if (std::count(compute.pulls.begin(), compute.pulls.end(), s) > 0) {
      event.push.wanted = compute.version;
    }
    const bool is_wrong = options_.sabotage == PsSabotage::kWrongSlice && w.number == 1;
    const std::uint64_t gradient =
        gradient_of(samples_of(plan_for(plan_, w), compute.slice) + (is_wrong ? 1 : 0), w.held, s);
    send_up(w, s, [this, s, i = w.leader[s], event, gradient, question = compute.question] {
      if (event.push.wanted) {
        shards_.at(s, i).questions[event.push.worker] = question;
      }
      if (s == 0) {
        note_push(event.push.worker);
        speeds_->arrived(queue_.now(), event.push.worker);
      }
      const auto fate = shards_.tell(s, i, event, gradient);
      if (options_.sabotage == PsSabotage::kComputesTwice && event.push.slice == 0) {
        (void)shards_.tell(s, i, event, gradient);
      }
      if (s == 0) {
        result_.at_once += event.push.at_once && fate == PushFate::kApplied ? 1 : 0;
        follow_stragglers(i);
      }
    });
  }
}

/// Whether the worker's requests are ignored because of kNeglectsTheLate.
bool PsRun::is_neglected(const PsWorker& w) const {
  return options_.sabotage == PsSabotage::kNeglectsTheLate && w.number >= options_.workers;
}

void PsRun::note_push(MemberId id) {
  ++result_.computed;
  ++worker(id).pushed;
  const bool ends = first_shard().core.order().applied().count() + workers_.size() >=
                    first_shard().core.plan().last_slice();
  if (!ends) {  // near the end there is not enough work for all workers
    result_.clock_gap_max = std::max(result_.clock_gap_max, clock_gap(workers_));
  }
}

/// Records a state as in the product: the states of all shards must be those of the leaders that
/// this worker knows.
bool PsRun::record(PsWorker& w, const Snapshot& snapshot) {
  std::vector<std::uint64_t> models;
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    const PsReplica& from = shards_.at(s, w.leader[s]);
    if (!from.is_alive || !from.leads || w.leader[s] != shards_.leader_of(s) ||
        !roster_.contains(w.id) || !from.waiting.empty()) {
      queue_.after(std::chrono::microseconds(kPsLatencyUs), [this, id = w.id] { act(worker(id)); });
      return false;
    }
    result_.wrong_snapshots +=
        from.core.order().version() == first_shard().core.leases()->version_at(snapshot.first) ? 0
                                                                                               : 1;
    models.push_back(from.log.model);
  }
  const std::uint64_t step = plan_for(plan_, w).steps_before(snapshot.first);
  result_.snapshots[step] = models;
  if (!members_) {
    w.flow.recorded();
    return true;
  }
  w.computes = true;  // it is busy with writing
  queue_.after(std::chrono::microseconds(random_.below(kRecordUs)),
               [this, id = w.id, is_last = step == options_.steps] {
                 if (is_last && worker(id).alive) {
                   members_->wait_for_reports(id);
                 } else {
                   on_reports_taken(id);
                 }
               });
  return false;
}

PsResult PsRun::finish() {
  result_.took = queue_.now() - Instant{};
  result_.takeovers = shards_.takeovers();
  if (members_) {
    members_->report(result_);
  }
  if (result_.torn) {
    return std::move(result_);
  }
  shards_.report(result_);
  for (const auto& [id, w] : workers_) {
    result_.done = result_.done && (w->over || !w->alive);
    result_.pushed[w->number] = w->pushed;
  }
  return std::move(result_);
}

PsResult run_parameter_server(const PsOptions& options) {
  return PsRun(options).run();
}

}  // namespace mayfly::sim
