#include "tests/sim/parameter_server_world.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "tests/sim/parameter_server_model.hpp"
#include "tests/sim/parameter_server_shards.hpp"
#include "tests/sim/parameter_server_worker.hpp"

namespace mayfly::sim {
namespace {

using parameter_server::FlowAction;
using parameter_server::Grants;
using parameter_server::PushFate;
using parameter_server::ShardEvent;
using parameter_server::ShardEventKind;
using parameter_server::SyncPlan;
using Worker = PsWorker;
using namespace parameter_server::flow;

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
        plan_(plan_of(loosened(options))),
        shards_(options_, plan_, queue_, random_,
                {[this](const Grants& grants) { deliver(grants); },
                 [this](std::uint32_t s, const std::map<MemberId, std::uint64_t>& questions,
                        std::uint64_t version,
                        std::uint64_t model) { answer(s, questions, version, model); },
                 [this](std::uint32_t s) {
                   if (s == 0) {
                     speeds_.emplace(parameter_server::StragglerOptions{});
                     speeds_->set_workers(roster_);
                   }
                 }}) {}

  PsResult run() {
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
      add_worker();
    }
    plan_faults();
    while (!result_.torn && queue_.run_one() && queue_.now() < Instant{} + seconds(60)) {
      if (result_.over == Duration{} && shards_.leader(0).core.desk()->is_over()) {
        result_.over = queue_.now() - Instant{};
      }
    }
    return finish();
  }

 private:
  Worker& worker(MemberId id) { return *workers_.at(id); }
  Duration some_time() { return us(random_.below(kLatencyUs)); }

  void add_worker() { add_worker_on(static_cast<std::uint32_t>(workers_.size())); }

  void add_worker_on(std::uint32_t host) {
    const MemberId id{workers_.size() + 1};
    auto fresh = std::make_unique<Worker>(options_.shards);
    fresh->id = id;
    fresh->number = static_cast<std::uint32_t>(workers_.size());
    fresh->host = host;
    fresh->joined = queue_.now();
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      fresh->leader[s] = shards_.leader_of(s);
    }
    workers_.emplace(id, std::move(fresh));
    roster_.insert(id);
    publish();
    greet(worker(id));
    for (const PsCut& cut : options_.cuts) {
      if (cut.worker == host) {
        const Instant from = std::max(queue_.now(), Instant{} + cut.from);
        queue_.after(from + options_.cut_noticed - queue_.now(), [this, id] { cut_off(id); });
      }
    }
  }

  /// As the product: the first shard when all others have let it in.
  void greet(Worker& w) {
    for (std::uint32_t s = 1; s < options_.shards; ++s) {
      hello(w, s);
    }
    greet_first(w);
  }

  void greet_first(Worker& w) {
    if (w.flow.may_greet(0) && !std::exchange(w.greets_first, true)) {
      hello(w, 0);
    }
  }

  /// One whose link is cut and that everybody has noticed it of.
  void cut_off(MemberId id) {
    Worker& w = worker(id);
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
      if (!shards_.leader(0).core.desk()->is_over()) {
        add_worker_on(host);
      }
    });
  }

  /// Everybody learns of the newest view, each in its own time.
  void publish() {
    result_.torn = shards_.is_torn();
    if (result_.torn) {
      return;
    }
    speeds_->set_workers(roster_);
    shards_.publish(roster_);
    for (const auto& [id, w] : workers_) {
      queue_.after(some_time(), [this, id = id] { learn(worker(id)); });
    }
  }

  /// A worker learns of the newest view: shards may be led elsewhere.
  void learn(Worker& w) {
    if (!w.alive || w.over || !roster_.contains(w.id)) {
      return;
    }
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      if (w.leader[s] != shards_.leader_of(s)) {
        w.leader[s] = shards_.leader_of(s);
        connect_again(w, s);
      }
    }
  }

  /// Sends something to the leader of a shard; it arrives unless the connection is gone by then.
  void send_up(Worker& from, std::uint32_t s, std::function<void()> message) {
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

  void send_down(MemberId id, std::uint32_t s, std::function<void(Worker&)> message) {
    PsLane& lane = worker(id).down[s];
    lane.last = std::max(lane.last, queue_.now() + some_time());
    queue_.after(lane.last - queue_.now(),
                 [this, id, s, generation = lane.generation, message = std::move(message)] {
                   Worker& to = worker(id);
                   if (to.alive && to.down[s].generation == generation &&
                       !is_lost(options_, to, s, false, queue_.now())) {
                     message(to);
                     act(to);
                   }
                 });
  }

  void hello(Worker& from, std::uint32_t s) {
    ShardEvent event{.kind = ShardEventKind::kConnected, .serial = from.flow.received()};
    event.rewind = from.flow.rewind();
    event.push.worker = from.id;
    send_up(from, s, [this, s, i = from.leader[s], event] {
      (void)shards_.tell(s, i, event, 0);
      send_down(event.push.worker, s, [this, s](Worker& to) {
        to.flow.welcomed(s);
        greet_first(to);
      });
    });
  }

  void deliver(const Grants& grants) {
    for (const auto& [id, lease] : grants) {
      note_lease(id, lease);
      send_down(id, 0, [lease = lease](Worker& to) { to.flow.granted(lease); });
    }
  }

  void note_lease(MemberId id, const parameter_server::Lease& lease) {
    if (!shards_.leader(0).core.desk()->shows_speeds()) {
      speeds_->forget_leases();
    } else if (lease.kind == parameter_server::LeaseKind::kCompute) {
      speeds_->leased(queue_.now(), id, lease.serial, lease.count);
    } else if (lease.kind == parameter_server::LeaseKind::kProbe) {
      ++result_.probes;
      speeds_->probed(queue_.now(), id, lease.count);
    }
  }

  void follow_stragglers(std::uint32_t i) {
    const auto changes = speeds_->take_changes();
    if (options_.stragglers == parameter_server::StragglerPolicy::kNone || changes.empty()) {
      return;
    }
    result_.straggler_changes.insert(result_.straggler_changes.end(), changes.begin(),
                                     changes.end());
    (void)shards_.tell(
        0, i, {.kind = ShardEventKind::kStragglers, .stragglers = speeds_->stragglers()}, 0);
  }

  void answer(std::uint32_t s, const std::map<MemberId, std::uint64_t>& questions,
              std::uint64_t version, std::uint64_t model) {
    for (const auto& [id, question] : questions) {
      send_down(id, s, [s, question = question, version, model](Worker& to) {
        if (to.flow.expects(s, question)) {
          to.fresh[s] = model;
          to.flow.answered(s, version);
        }
      });
    }
  }

  /// The worker does what its flow says until it has to wait or to compute.
  void act(Worker& w) {
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
              [this, compute = Compute(*compute)](Worker& done) { send_push(done, compute); });
      } else if (const auto* probe = std::get_if<Probe>(&action)) {
        begin(w, probe->first, probe->count, [](Worker&) {});
      } else if (const auto* snapshot = std::get_if<Snapshot>(&action)) {
        if (!record(w, *snapshot)) {
          return;
        }
      } else if (std::holds_alternative<Rest>(action)) {
        send_rest(w);
      } else {
        w.over = true;
      }
    }
  }

  void send_pull(Worker& w, const Pull& pull) {
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

  std::uint64_t confirmed(const Worker& w) const {
    return options_.sabotage == PsSabotage::kConfirmsEarly ? w.flow.received()
                                                           : w.flow.done_through();
  }

  void send_rest(Worker& w) {
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
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
      ShardEvent event{.kind = ShardEventKind::kPush, .serial = confirmed(w)};
      event.rewind = w.flow.rewind();
      event.loss = loss_of(options_, plan_for(plan_, w), compute.slice);
      event.microbatches = 1;
      event.push.worker = w.id;
      event.push.slice = compute.slice;
      event.push.base_version = w.flow.version(s);
      event.push.clock = compute.clock;
      event.push.at_once = compute.at_once;
      event.wants_lease = compute.wants_lease && s == 0;
      if (std::count(compute.pulls.begin(), compute.pulls.end(), s) > 0) {
        event.push.wanted = compute.version;
      }
      const bool is_wrong = options_.sabotage == PsSabotage::kWrongSlice && w.number == 1;
      const std::uint64_t gradient = gradient_of(
          samples_of(plan_for(plan_, w), compute.slice) + (is_wrong ? 1 : 0), w.held, s);
      send_up(w, s, [this, s, i = w.leader[s], event, gradient, question = compute.question] {
        if (event.push.wanted) {
          shards_.at(s, i).questions[event.push.worker] = question;
        }
        if (s == 0) {
          note_push(event.push.worker);
          speeds_->arrived(queue_.now(), event.push.worker);
        }
        const auto fate = shards_.tell(s, i, event, gradient);
        if (s == 0) {
          result_.at_once += event.push.at_once && fate == PushFate::kApplied ? 1 : 0;
          follow_stragglers(i);
        }
      });
    }
  }

  void note_push(MemberId id) {
    ++result_.computed;
    ++worker(id).pushed;
    const bool ends = shards_.leader(0).core.order().applied().count() + workers_.size() >=
                      shards_.leader(0).core.plan().last_slice();
    if (!ends) {  // then there is not work for everybody
      result_.clock_gap_max = std::max(result_.clock_gap_max, clock_gap(workers_));
    }
  }

  /// As the product: the states of all shards must come from leaders as this worker knows them.
  bool record(Worker& w, const Snapshot& snapshot) {
    std::vector<std::uint64_t> models;
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      const PsReplica& from = shards_.at(s, w.leader[s]);
      if (!from.is_alive || !from.leads || w.leader[s] != shards_.leader_of(s) ||
          !roster_.contains(w.id) || !from.waiting.empty()) {
        queue_.after(us(kLatencyUs), [this, id = w.id] { act(worker(id)); });
        return false;
      }
      result_.wrong_snapshots +=
          from.core.order().version() == shards_.leader(0).core.desk()->version_at(snapshot.first)
              ? 0
              : 1;
      models.push_back(from.log.model);
    }
    result_.snapshots[plan_for(plan_, w).steps_before(snapshot.first)] = models;
    w.flow.recorded();
    return true;
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
    for (std::uint32_t i = 0; i < options_.server_kills + options_.zombies; ++i) {
      const bool dies = i < options_.server_kills;
      queue_.after(us(random_.below(kJobUs)),
                   [this, dies] { options_.colocated ? disown_one() : lose_server(dies); });
    }
    for (std::uint32_t i = 0; i < options_.holds; ++i) {
      queue_.after(us(random_.below(kJobUs)), [this] {
        if (shards_.leader(0).is_alive) {
          (void)shards_.tell(0, shards_.leader_of(0), {.kind = ShardEventKind::kHold}, 0);
        }
        queue_.after(milliseconds(20), [this] {
          result_.quiet_moments += shards_.leader(0).core.desk()->is_quiet() ? 1 : 0;
          shards_.meet(0, shards_.leader_of(0));
        });
      });
    }
  }

  std::vector<MemberId> living() const { return sim::living(workers_); }

  /// What it has sent still arrives, up to another moment for each shard.
  void kill_one() {
    const std::vector<MemberId> ids = living();
    if (ids.size() < 2) {
      return;
    }
    Worker& victim = worker(ids[random_.below(ids.size())]);
    victim.alive = false;
    if (carries(victim)) {
      (void)shards_.lose(victim.number, true);
    }
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      queue_.after(some_time(), [&victim, s] { ++victim.up[s].generation; });
    }
    declare_lost_soon(victim);
  }

  [[nodiscard]] bool carries(const Worker& w) const {
    return options_.colocated && w.number < options_.shards;
  }

  /// The next view is without it, and without what it carries.
  void declare_lost_soon(Worker& victim) {
    queue_.after(us(kLatencyUs + random_.below(5 * kLatencyUs)), [this, &victim] {
      roster_.erase(victim.id);
      if (carries(victim)) {
        shards_.declare_lost(victim.number);
      }
      publish();
    });
  }

  /// A worker and the server that it carries are taken for dead, and go on until they hear of it.
  void disown_one() {
    Worker& victim = worker(MemberId{1 + random_.below(options_.shards)});
    const bool can_go = living().size() >= 2 && victim.alive && !victim.over;
    if (can_go && shards_.lose(victim.number, false)) {
      declare_lost_soon(victim);
      queue_.after(us(kJobUs), [&victim] { victim.alive = false; });
    }
  }

  void lose_server(bool dies) {
    const auto server = static_cast<std::uint32_t>(random_.below(options_.shards));
    if (living().empty() || !shards_.lose(server, dies)) {
      return;
    }
    queue_.after(us(kLatencyUs + random_.below(5 * kLatencyUs)), [this, server] {
      shards_.declare_lost(server);
      publish();
    });
  }

  void connect_again(Worker& w, std::uint32_t s) {
    ++w.up[s].generation;
    ++w.down[s].generation;
    w.flow.reconnected(s);
    if (s > 0 || w.greets_first) {
      hello(w, s);
    }
    act(w);
  }

  void break_one() {
    const std::vector<MemberId> ids = living();
    if (ids.empty()) {
      return;
    }
    connect_again(worker(ids[random_.below(ids.size())]),
                  static_cast<std::uint32_t>(random_.below(options_.shards)));
  }

  PsResult finish() {
    result_.took = queue_.now() - Instant{};
    result_.takeovers = shards_.takeovers();
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

  PsOptions options_;
  RandomStream random_;
  SyncPlan plan_;
  EventQueue queue_;
  std::optional<parameter_server::StragglerWatch> speeds_{parameter_server::StragglerOptions{}};
  PsShards shards_;
  PsWorkers workers_;
  std::set<MemberId> roster_;
  PsResult result_;
};

}  // namespace

PsResult run_parameter_server(const PsOptions& options) {
  return World(options).run();
}

}  // namespace mayfly::sim
