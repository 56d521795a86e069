#include "tests/sim/parameter_server_world.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "tests/sim/parameter_server_model.hpp"

namespace mayfly::sim {
namespace {

using parameter_server::FlowAction;
using parameter_server::Grants;
using parameter_server::LeaseDesk;
using parameter_server::Push;
using parameter_server::PushFate;
using parameter_server::PushOutcome;
using parameter_server::SyncKind;
using parameter_server::SyncPlan;
using parameter_server::Update;
using parameter_server::UpdateOrder;
using parameter_server::WorkerFlow;
using parameter_server::flow::Adopt;
using parameter_server::flow::Compute;
using parameter_server::flow::Over;
using parameter_server::flow::Probe;
using parameter_server::flow::Pull;
using parameter_server::flow::Rest;
using parameter_server::flow::Snapshot;

constexpr std::int64_t kSliceUs = 1000;
constexpr std::uint64_t kLatencyUs = 200;
constexpr std::uint64_t kJobUs = 20'000;  // within which faults happen

Duration us(std::uint64_t count) {
  return std::chrono::microseconds(count);
}

class World {
 public:
  explicit World(const PsOptions& options)
      : options_(options),
        random_(CounterRandom(options.seed).split("parameter server")),
        plan_(plan_of(options)),
        desk_(plan_, {options.shards == 1, snapshot_slices(options), options.stragglers}) {
    for (std::uint32_t i = 0; i < options.shards; ++i) {
      shards_.push_back(std::make_unique<Shard>(plan_));
    }
    result_.shards.resize(options.shards);
  }

  PsResult run() {
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
      add_worker();
    }
    plan_faults();
    while (queue_.run_one() && queue_.now() < Instant{} + seconds(60)) {
    }
    return finish();
  }

 private:
  struct Shard {
    explicit Shard(const SyncPlan& plan) : order(plan) {}
    UpdateOrder order;
    std::set<MemberId> present;
    std::set<MemberId> gone;
    std::map<MemberId, std::vector<std::function<void()>>> unread;
    std::map<MemberId, std::uint64_t> questions;  // the newest of each worker
    std::map<std::uint64_t, std::uint64_t> kept;  // slice to gradient
  };
  /// One direction of a connection: in order, and cut off when the connection breaks.
  struct Lane {
    Instant last;
    std::uint64_t generation = 0;
  };
  struct Worker {
    explicit Worker(std::uint32_t shards)
        : flow(shards), held(shards), fresh(shards), up(shards), down(shards) {}
    MemberId id{};
    std::uint32_t number = 0;
    WorkerFlow flow;
    std::vector<std::uint64_t> held;
    std::vector<std::uint64_t> fresh;
    std::vector<Lane> up;
    std::vector<Lane> down;
    bool alive = true;
    bool computes = false;
    bool over = false;
    std::uint64_t pushed = 0;
  };

  static std::set<std::uint64_t> snapshot_slices(const PsOptions& options) {
    std::set<std::uint64_t> slices;
    for (const std::uint64_t step : options.snapshot_steps) {
      slices.insert(step * options.slices_per_step);
    }
    return slices;
  }

  Worker& worker(MemberId id) { return *workers_.at(id); }

  void add_worker() {
    const MemberId id{workers_.size() + 1};
    auto fresh = std::make_unique<Worker>(options_.shards);
    fresh->id = id;
    fresh->number = static_cast<std::uint32_t>(workers_.size());
    workers_.emplace(id, std::move(fresh));
    roster_.insert(id);
    publish_roster();
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      hello(worker(id), s);
    }
  }

  void publish_roster() {
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      queue_.after(us(random_.below(kLatencyUs)), [this, s] { meet(s); });
    }
  }

  /// A shard learns who is a member now.
  void meet(std::uint32_t s) {
    Shard& shard = *shards_[s];
    for (const MemberId id : std::set(shard.present)) {
      if (!roster_.contains(id)) {
        shard.present.erase(id);
        shard.gone.insert(id);
        answer(s, shard.order.gone(id));
      }
    }
    shard.present = roster_;
    if (s == 0) {
      speeds_.set_workers(roster_);
      deliver(desk_.set_workers(roster_));
    }
    for (const auto& [id, messages] : std::exchange(shard.unread, {})) {
      for (const auto& message : messages) {
        take(id, s, message);
      }
    }
  }

  /// Sends something to a shard; it arrives unless the connection or the worker is gone by then.
  void send_up(Worker& from, std::uint32_t s, std::function<void()> message) {
    Lane& lane = from.up[s];
    lane.last = std::max(lane.last, queue_.now() + us(random_.below(kLatencyUs)));
    const MemberId id = from.id;
    queue_.after(lane.last - queue_.now(),
                 [this, id, s, generation = lane.generation, message = std::move(message)] {
                   if (worker(id).up[s].generation == generation) {
                     take(id, s, message);
                   }
                 });
  }

  /// Of a worker that the shard has not heard of yet, nothing is read; of one that is gone, never.
  void take(MemberId id, std::uint32_t s, const std::function<void()>& message) {
    Shard& shard = *shards_[s];
    if (shard.present.contains(id)) {
      message();
    } else if (!shard.gone.contains(id)) {
      shard.unread[id].push_back(message);
    }
  }

  void send_down(MemberId id, std::uint32_t s, std::function<void(Worker&)> message) {
    Lane& lane = worker(id).down[s];
    lane.last = std::max(lane.last, queue_.now() + us(random_.below(kLatencyUs)));
    queue_.after(lane.last - queue_.now(),
                 [this, id, s, generation = lane.generation, message = std::move(message)] {
                   Worker& to = worker(id);
                   if (to.alive && to.down[s].generation == generation) {
                     message(to);
                     act(to);
                   }
                 });
  }

  void hello(Worker& from, std::uint32_t s) {
    const std::uint64_t received = from.flow.received();
    const MemberId id = from.id;
    send_up(from, s, [this, id, s, received] {
      if (s == 0) {
        deliver(desk_.connected(id, received));
      }
    });
  }

  void deliver(const Grants& grants) {
    for (const auto& [id, lease] : grants) {
      note_lease(id, lease);
      send_down(id, 0, [lease = lease](Worker& to) { to.flow.granted(lease); });
    }
  }

  void note_lease(MemberId id, const parameter_server::Lease& lease) {
    if (!desk_.shows_speeds()) {
      speeds_.forget_leases();
    } else if (lease.kind == parameter_server::LeaseKind::kCompute) {
      speeds_.leased(queue_.now(), id, lease.serial, lease.count);
    } else if (lease.kind == parameter_server::LeaseKind::kProbe) {
      ++result_.probes;
      speeds_.probed(queue_.now(), id, lease.count);
    }
  }

  void follow_stragglers() {
    const auto changes = speeds_.take_changes();
    if (options_.stragglers == parameter_server::StragglerPolicy::kNone || changes.empty()) {
      return;
    }
    result_.straggler_changes.insert(result_.straggler_changes.end(), changes.begin(),
                                     changes.end());
    deliver(desk_.set_stragglers(speeds_.stragglers()));
  }

  void answer(std::uint32_t s, const std::vector<MemberId>& ids) {
    Shard& shard = *shards_[s];
    for (const MemberId id : ids) {
      send_down(id, s,
                [s, question = shard.questions[id], version = shard.order.version(),
                 model = result_.shards[s].model](Worker& to) {
                  if (to.flow.expects(s, question)) {
                    to.fresh[s] = model;
                    to.flow.answered(s, version);
                  }
                });
    }
  }

  /// The worker does what its flow says until it has to wait or to compute.
  void act(Worker& w) {
    while (w.alive && !w.computes && !w.over) {
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
              [this, compute = Compute(*compute)](Worker& done) { send_push(done, compute); });
      } else if (const auto* probe = std::get_if<Probe>(&action)) {
        begin(w, probe->first, probe->count, [](Worker&) {});
      } else if (const auto* snapshot = std::get_if<Snapshot>(&action)) {
        record(w, *snapshot);
      } else if (std::holds_alternative<Rest>(action)) {
        send_rest(w);
      } else {
        w.over = true;
      }
    }
  }

  void send_pull(Worker& w, const Pull& pull) {
    for (const std::uint32_t s : pull.shards) {
      send_up(w, s, [this, s, id = w.id, pull = Pull(pull)] {
        shards_[s]->questions[id] = pull.question;
        answer(s, shards_[s]->order.pulled(id, pull.clock, pull.version));
      });
    }
  }

  void send_rest(Worker& w) {
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      send_up(w, s, [this, s, id = w.id, done = w.flow.done_through()] {
        answer(s, shards_[s]->order.rested(id));
        if (s == 0) {
          speeds_.probe_done(queue_.now(), id);
          deliver(desk_.rested(id, done));
          follow_stragglers();
        }
      });
    }
  }

  void begin(Worker& w, std::uint64_t slice, std::uint32_t count,
             std::function<void(Worker&)> then) {
    w.computes = true;
    const bool is_slow =
        options_.slow.contains(w.number) && slice >= options_.slow_from && slice < options_.slow_to;
    const double factor = is_slow ? options_.slow.at(w.number) : 1;
    const double took =
        kSliceUs * count * factor * (1 + options_.jitter * (2 * random_.unit() - 1));
    queue_.after(us(static_cast<std::uint64_t>(took)), [this, id = w.id, then = std::move(then)] {
      Worker& done = worker(id);
      if (done.alive) {
        done.computes = false;
        then(done);
        act(done);
      }
    });
  }

  void send_push(Worker& w, const Compute& compute) {
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      Push push;
      push.worker = w.id;
      push.slice = compute.slice;
      push.base_version = w.flow.version(s);
      push.clock = compute.clock;
      push.at_once = compute.at_once;
      if (std::count(compute.pulls.begin(), compute.pulls.end(), s) > 0) {
        push.wanted = compute.version;
      }
      const std::uint64_t gradient = gradient_of(compute.slice, w.held, s);
      const bool wants = compute.wants_lease && s == 0;
      send_up(w, s,
              [this, s, push, gradient, wants, question = compute.question,
               done = w.flow.done_through()] {
                if (shards_[s]->present.contains(push.worker)) {
                  if (push.wanted) {
                    shards_[s]->questions[push.worker] = question;
                  }
                  receive(s, push, gradient, wants, done);
                }
              });
    }
  }

  void receive(std::uint32_t s, const Push& push, std::uint64_t gradient, bool wants,
               std::uint64_t done) {
    Shard& shard = *shards_[s];
    PsShardLog& log = result_.shards[s];
    log.pushes.push_back(push);
    log.gradients.push_back(gradient);
    Result<PushOutcome> outcome = shard.order.pushed(push);
    ENSURE(outcome.ok(), "workers that follow their leases are never refused");
    const PushFate fate = outcome.value().fate;
    if (fate == PushFate::kApplied || fate == PushFate::kStaged) {
      shard.kept[push.slice] = gradient;
    }
    if (outcome.value().update) {
      apply(s, *outcome.value().update);
    }
    if (s == 0) {
      tell_desk(push, outcome.value(), wants, done);
    }
    answer(s, outcome.value().answers);
  }

  void apply(std::uint32_t s, const Update& update) {
    PsShardLog& log = result_.shards[s];
    log.model = updated(log.model, update, shards_[s]->kept);
    log.committed.insert(log.committed.end(), update.slices.begin(), update.slices.end());
    log.update_sizes.push_back(update.slices.size());
    for (const std::uint64_t slice : update.slices) {
      shards_[s]->kept.erase(slice);
    }
  }

  void tell_desk(const Push& push, const PushOutcome& outcome, bool wants, std::uint64_t done) {
    ++result_.computed;
    result_.repeats += outcome.fate == PushFate::kRepeat ? 1 : 0;
    ++worker(push.worker).pushed;
    result_.at_once += push.at_once && outcome.fate == PushFate::kApplied ? 1 : 0;
    measure_gap();
    speeds_.arrived(queue_.now(), push.worker);
    deliver(desk_.confirmed(push.worker, done));
    if (outcome.fate == PushFate::kStaged) {
      desk_.staged(push.slice);
    } else if (outcome.fate == PushFate::kLate) {
      deliver(desk_.dropped(push.slice));
    }
    if (outcome.update) {
      deliver(desk_.applied(outcome.update->slices));
    }
    if (wants) {
      deliver(desk_.wants(push.worker));
    }
    follow_stragglers();
  }

  void measure_gap() {
    std::uint64_t least = UINT64_MAX;
    std::uint64_t most = 0;
    for (const auto& [id, w] : workers_) {
      least = std::min(least, w->pushed);
      most = std::max(most, w->pushed);
    }
    const bool ends = shards_[0]->order.applied().count() + workers_.size() >= plan_.last_slice();
    if (!ends) {  // then there is not work for everybody
      result_.clock_gap_max = std::max(result_.clock_gap_max, most - least);
    }
  }

  void record(Worker& w, const Snapshot& snapshot) {
    std::vector<std::uint64_t> models;
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      ENSURE(shards_[s]->order.version() == desk_.version_at(snapshot.first),
             "a snapshot is taken when every shard has exactly the slices before it");
      models.push_back(result_.shards[s].model);
    }
    result_.snapshots[snapshot.first / options_.slices_per_step] = models;
    w.flow.recorded();
  }

  void plan_faults() {
    for (std::uint32_t i = 0; i < options_.kills; ++i) {
      queue_.after(us(random_.below(kJobUs)), [this] { kill_one(); });
    }
    for (std::uint32_t i = 0; i < options_.joins; ++i) {
      queue_.after(us(random_.below(kJobUs)), [this] { add_worker(); });
    }
    for (std::uint32_t i = 0; i < options_.breaks; ++i) {
      queue_.after(us(random_.below(kJobUs)), [this] { break_one(); });
    }
    for (std::uint32_t i = 0; i < options_.holds; ++i) {
      queue_.after(us(random_.below(kJobUs)), [this] {
        desk_.hold();
        queue_.after(milliseconds(20), [this] {
          result_.quiet_moments += desk_.is_quiet() ? 1 : 0;
          deliver(desk_.go_on());
        });
      });
    }
  }

  std::vector<MemberId> living() const {
    std::vector<MemberId> ids;
    for (const auto& [id, w] : workers_) {
      if (w->alive && !w->over) {
        ids.push_back(id);
      }
    }
    return ids;
  }

  /// What it has sent still arrives, up to another moment for each shard.
  void kill_one() {
    const std::vector<MemberId> ids = living();
    if (ids.size() < 2) {
      return;
    }
    Worker& victim = worker(ids[random_.below(ids.size())]);
    victim.alive = false;
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      queue_.after(us(random_.below(kLatencyUs)), [&victim, s] { ++victim.up[s].generation; });
    }
    queue_.after(us(kLatencyUs + random_.below(5 * kLatencyUs)), [this, id = victim.id] {
      roster_.erase(id);
      publish_roster();
    });
  }

  void break_one() {
    const std::vector<MemberId> ids = living();
    if (ids.empty()) {
      return;
    }
    Worker& w = worker(ids[random_.below(ids.size())]);
    const auto s = static_cast<std::uint32_t>(random_.below(options_.shards));
    ++w.up[s].generation;
    ++w.down[s].generation;
    w.flow.reconnected(s);
    hello(w, s);
    act(w);
  }

  PsResult finish() {
    result_.took = queue_.now() - Instant{};
    result_.late = desk_.late();
    result_.mixed = desk_.mixed();
    result_.reissued = desk_.reissued();
    result_.done = desk_.is_over();
    result_.final_version = desk_.version_at(plan_.last_slice());
    for (const auto& [id, w] : workers_) {
      result_.done = result_.done && (w->over || !w->alive);
      result_.pushed[w->number] = w->pushed;
    }
    for (const auto& shard : shards_) {
      result_.versions.push_back(shard->order.version());
      result_.staleness.push_back(shard->order.staleness());
    }
    return std::move(result_);
  }

  PsOptions options_;
  RandomStream random_;
  SyncPlan plan_;
  LeaseDesk desk_;
  parameter_server::StragglerWatch speeds_{{}};
  EventQueue queue_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::map<MemberId, std::unique_ptr<Worker>> workers_;
  std::set<MemberId> roster_;
  PsResult result_;
};

}  // namespace

PsResult run_parameter_server(const PsOptions& options) {
  return World(options).run();
}

}  // namespace mayfly::sim
