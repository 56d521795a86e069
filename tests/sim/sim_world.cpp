#include "tests/sim/sim_world.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "elastic/core/history.hpp"

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kMemberTick = milliseconds(10);
constexpr Duration kSettling = seconds(30);

/// The instant by which even the slowest possible worker would have done the whole job alone.
Instant bound_of(const Scenario& scenario) {
  const auto microbatches = static_cast<std::int64_t>(scenario.steps) * scenario.microbatches;
  const FaultPlan& faults = scenario.faults;
  const bool slow = faults.slow_members || faults.speed_change_every > Duration::zero();
  const int slowest = slow ? kSlowestFactor : 1;
  const Duration step_overhead = milliseconds(5) * static_cast<std::int64_t>(scenario.steps);
  return Instant{} + scenario.faults.faults_end + kSettling + step_overhead +
         scenario.microbatch_time * microbatches * slowest;
}

/// The time of a step that the slowest member computes alone, plus that of the messages of a
/// planned change.
Duration longest_step(const Scenario& scenario) {
  const FaultPlan& faults = scenario.faults;
  const bool slow = faults.slow_members || faults.speed_change_every > Duration::zero();
  return scenario.microbatch_time * (scenario.microbatches * (slow ? kSlowestFactor : 1)) +
         4 * faults.message_delay_max + milliseconds(300);
}

CoordinatorOptions options_of(const Scenario& scenario) {
  CoordinatorOptions options;
  options.microbatches = scenario.microbatches;
  options.last_step = Step{scenario.steps};
  options.initial_workers = scenario.initial_workers;
  options.min_workers = scenario.min_workers;
  options.view_max = scenario.view_max;
  options.delta_from_members = scenario.delta_from_members;
  options.stop_timeout = seconds(2);
  options.seed = scenario.seed;
  options.speed_sample = milliseconds(40);  // a simulated second is a real minute
  options.rebalance.sustained = milliseconds(100);
  options.rebalance.interval = milliseconds(300);
  options.observe_from_bytes = 1;
  if (scenario.faults.drains_stragglers) {
    options.stragglers = {3.0, milliseconds(300)};
  }
  return options;
}

/// The shortest time after which a fast clock shows that `silence` has passed. The last heartbeat
/// may have arrived shortly before the member fell silent.
Duration earliest(Duration silence, const Scenario& scenario) {
  const SimClock fast({}, scenario.faults.clock_drift_per_mille);
  return fast.real(silence) - milliseconds(50);
}

/// Whether the message announces a view after the third.
bool announces_later_view(const Message& message) {
  const auto* view = std::get_if<NewView>(&message);
  const auto* delta = std::get_if<NewViewDelta>(&message);
  return (view != nullptr && value(view->view.id) > 3) ||
         (delta != nullptr && value(delta->delta.id) > 3);
}

}  // namespace

SimWorld::SimWorld(const Scenario& scenario)
    : scenario_(scenario),
      random_(CounterRandom(scenario.seed).split("world")),
      view_checker_(violations_),
      commit_checker_(violations_, scenario.microbatches),
      microbatch_checker_(violations_, scenario.microbatches),
      sample_order_(scenario.seed, scenario.samples, scenario.microbatches,
                    scenario.microbatch_size),
      sample_checker_(violations_, sample_order_),
      lease_checker_(violations_),
      corruption_checker_(violations_),
      rebalance_checker_(violations_),
      suspicion_checker_(violations_, earliest(options_of(scenario).silence_max, scenario),
                         earliest(options_of(scenario).starved_max, scenario),
                         std::max(scenario.faults.message_delay_max,
                                  scenario.faults.sentinel_delay_max) <= milliseconds(2)),
      eviction_checker_(violations_),
      budget_checker_(violations_, 3),
      pace_checker_(violations_, longest_step(scenario)),
      liveness_(violations_, bound_of(scenario)),
      coordinator_(options_of(scenario)) {}

RunResult SimWorld::run() {
  clock_ = draw_clock();
  for (std::uint32_t i = 0; i < scenario_.initial_workers; ++i) {
    add_worker();
  }
  tick();
  start_faults();
  while (!liveness_.ended() && violations_.empty() &&
         liveness_.on_time(queue_.now(), name_of(coordinator_.phase())) && queue_.run_one()) {
  }
  result_.failed = liveness_.failed() ? 1 : 0;
  result_.stopped = liveness_.stopped() ? 1 : 0;
  if (liveness_.ended() && !liveness_.failed() && !liveness_.stopped()) {
    commit_checker_.on_end(scenario_.steps);
    sample_checker_.on_end(scenario_.steps);
  }
  result_.violations = violations_.texts();
  result_.fingerprint = mix64(result_.fingerprint ^ static_cast<std::uint64_t>(queue_.now().ns));
  return std::move(result_);
}

Duration SimWorld::draw_delay(Duration most) {
  return Duration(
      static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most.count()) + 1)));
}

// --- workers

void SimWorld::add_worker() {
  const std::size_t index = workers_.size();
  budget_checker_.on_event();
  const auto factor = scenario_.faults.slow_members ? 1 + random_.below(kSlowestFactor) : 1;
  // A checkpoint is written every ten steps; some workers find one.
  const std::uint64_t saved = commit_checker_.highest_right() / 10 * 10;
  const std::uint64_t committed = random_.below(3) == 0 ? saved : 0;
  workers_.push_back(std::make_unique<SimWorker>(
      *this, index, scenario_.microbatch_time * static_cast<std::int64_t>(factor), committed,
      commit_checker_.expected(committed)));
  connections_.push_back({});
  machines_.push_back({draw_clock(), {}, {}});
  sent_.emplace_back();
  missed_.emplace_back();
  queue_.after(draw_delay(milliseconds(20)), [this, index] {
    if (workers_[index]->alive()) {
      give(coordinator_event::WorkerConnected{index, Hello{}});
    }
  });
}

void SimWorld::at_index(std::size_t index, Duration delay, WorkerEvent what) {
  queue_.after(delay, [this, index, what = std::move(what)]() mutable {
    SimWorker& worker = *workers_[index];
    auto& missed = missed_[index];
    if (!worker.alive()) {
      return;
    }
    if (worker.frozen_until() <= queue_.now() && missed.empty()) {
      what(worker);
      return;
    }
    missed.push_back(std::move(what));
    if (missed.size() == 1) {
      thaw_later(index);
    }
  });
}

/// When a worker is not frozen any more, runs all events that it missed, in order.
void SimWorld::thaw_later(std::size_t index) {
  const Duration rest = workers_[index]->frozen_until() - queue_.now();
  queue_.after(std::max(rest, Duration::zero()), [this, index] {
    SimWorker& worker = *workers_[index];
    if (worker.alive() && worker.frozen_until() > queue_.now()) {
      thaw_later(index);
      return;
    }
    std::vector<WorkerEvent> missed = std::exchange(missed_[index], {});
    for (WorkerEvent& what : missed) {
      if (worker.alive()) {
        what(worker);
      }
    }
  });
}

void SimWorld::at_worker(MemberId member, Duration delay, WorkerEvent what) {
  at_index(worker_of_.at(member), delay, std::move(what));
}

std::span<std::byte> SimWorld::scratch_of(MemberId member) {
  scratch_.resize(workers_.size());
  std::unique_ptr<std::byte[]>& memory = scratch_[worker_of_.at(member)];
  if (!memory) {  // not cleared, because exchanges only read bytes that they have written
    memory.reset(new std::byte[collectives::kExchangeScratchBytes]);
  }
  return {memory.get(), collectives::kExchangeScratchBytes};
}

SimGroup& SimWorld::group_of(const View& view) {
  std::unique_ptr<SimGroup>& group = groups_[view.id];
  if (!group) {
    group = std::make_unique<SimGroup>(*this, view);
  }
  return *group;
}

void SimWorld::on_reduced(ViewId view, std::uint64_t step,
                          const std::vector<MicrobatchSet>& parts) {
  microbatch_checker_.on_reduced(view, step, parts);
  pace_checker_.on_step(step, queue_.now());
  sample_checker_.on_reduced(step, parts);
}

ToySum SimWorld::sum_of(ToyState state, std::uint64_t step, std::uint32_t microbatch) const {
  ToySum sum = gradient(state, step, microbatch);
  sum.samples = sample_order_.hash(step, microbatch);
  return sum;
}

const SimWorker& SimWorld::worker_at(MemberId member) const {
  return *workers_[worker_of_.at(member)];
}

std::optional<ToyState> SimWorld::state_of(MemberId member, std::uint64_t step) const {
  return workers_[worker_of_.at(member)]->state_after(step);
}

// --- network

Duration SimWorld::in_order(Instant& last, Duration delay) {
  const Instant arrival = std::max(last, queue_.now() + delay);
  last = arrival;
  return arrival - queue_.now();
}

void SimWorld::to_coordinator(std::size_t index, const Message& message) {
  constexpr std::size_t kRemembered = 8;
  if (scenario_.faults.repeat_every != Duration::zero() &&
      !std::holds_alternative<Heartbeat>(message)) {
    sent_[index].push_back(message);
    if (sent_[index].size() > kRemembered) {
      sent_[index].pop_front();
    }
  }
  const Duration delay =
      in_order(connections_[index].last_up, draw_delay(scenario_.faults.message_delay_max));
  queue_.after(delay, [this, index, bytes = encode(message)] {
    const auto id = workers_[index]->id();
    if (!connections_[index].open || !id) {
      return;
    }
    Result<Message> decoded = decode(bytes);
    ENSURE(decoded.ok(), "what we encode can be decoded");
    give(coordinator_event::Received{*id, std::move(decoded).value()});
  });
}

void SimWorld::to_worker(std::size_t index, const Message& message) {
  if (scenario_.sabotage == Sabotage::kLosesViews && announces_later_view(message)) {
    return;
  }
  const Duration delay =
      in_order(connections_[index].last_down, draw_delay(scenario_.faults.message_delay_max));
  at_index(index, delay, [bytes = encode(message)](SimWorker& worker) {
    Result<Message> decoded = decode(bytes);
    ENSURE(decoded.ok(), "what we encode can be decoded");
    worker.on_message(decoded.value());
  });
}

void SimWorld::close_connection(std::size_t index) {
  connections_[index].open = false;
  const Duration delay =
      in_order(connections_[index].last_down, draw_delay(scenario_.faults.message_delay_max));
  at_index(index, delay, [](SimWorker& worker) { worker.on_connection_closed(); });
}

// --- the coordinator's input and output

void SimWorld::tick() {
  give(coordinator_event::Tick{});
  queue_.after(clock_.real(kMemberTick), [this] { tick(); });
}

/// While the coordinator's host is suspended, events are kept, and then handled in order.
void SimWorld::give(CoordinatorEvent event) {
  if (backlog_.empty() && queue_.now() >= stalled_until_) {
    handle(event);
    return;
  }
  backlog_.push_back(std::move(event));
  if (backlog_.size() == 1) {
    catch_up();
  }
}

void SimWorld::catch_up() {
  queue_.after(std::max(stalled_until_ - queue_.now(), Duration::zero()), [this] {
    if (queue_.now() < stalled_until_) {
      catch_up();
      return;
    }
    for (const CoordinatorEvent& event : std::exchange(backlog_, {})) {
      handle(event);
    }
  });
}

void SimWorld::handle(const CoordinatorEvent& event) {
  for (const CoordinatorEffect& effect : coordinator_.handle(clock_.at(queue_.now()), event)) {
    carry_out(effect);
  }
}

void SimWorld::carry_out(const CoordinatorEffect& effect) {
  using namespace coordinator_effect;
  if (const auto* accept = std::get_if<Accept>(&effect)) {
    worker_of_[accept->member] = accept->connection;
    beat(accept->connection);
    beat_of_sentinel(accept->connection);
  } else if (const auto* send = std::get_if<Send>(&effect)) {
    to_worker(worker_of_.at(send->member), send->message);
  } else if (const auto* to_all = std::get_if<SendToAll>(&effect)) {
    for (const MemberId member : to_all->members) {
      to_worker(worker_of_.at(member), to_all->message);
    }
  } else if (const auto* disconnect = std::get_if<Disconnect>(&effect)) {
    close_connection(worker_of_.at(disconnect->member));
  } else if (const auto* published = std::get_if<ViewPublished>(&effect)) {
    ++result_.views;
    budget_checker_.on_view();
    view_checker_.on_published(published->view);
    commit_checker_.on_view(published->view);
    last_members_.clear();
    for (const ViewMember& member : published->view.members) {
      last_members_.push_back(member.id);
    }
    maybe_crash_on_view(published->view);
  } else if (const auto* asked = std::get_if<coordinator_effect::Probe>(&effect)) {
    probe(asked->member);
  } else if (const auto* text = std::get_if<Note>(&effect)) {
    note(*text);
  } else if (std::holds_alternative<RecoveryDone>(effect)) {
    ++result_.recoveries;
  } else if (const auto* ended = std::get_if<JobEnded>(&effect)) {
    liveness_.on_ended(ended->outcome, corruption_checker_.any() || is_fail_asked_);
  }
}

std::vector<std::pair<std::string, std::uint64_t>> RunResult::counts() const {
  return {{"views", views},
          {"lost", losses},
          {"joined", joins},
          {"left", leaves},
          {"evicted", evictions},
          {"changes completed", recoveries},
          {"expelled", expelled},
          {"failed", failed},
          {"stopped", stopped},
          {"rebalances", rebalances},
          {"microbatches kept", kept_sums}};
}

RunResult simulate(const Scenario& scenario) {
  return SimWorld(scenario).run();
}

// --- the coordinator's notes, which are passed to the checkers

void SimWorld::note(const coordinator_effect::Note& note) {
  result_.losses += note.kind == "lost" ? 1 : 0;
  if (note.kind == "lost" && note.detail.starts_with("silent")) {
    suspected(*note.member);
  }
  if (note.kind == "lost" || note.kind == "evicted" || note.kind == "corrupted") {
    commit_checker_.on_lost(*note.member);
  } else if (note.kind == "left") {
    commit_checker_.on_left(*note.member);
  }
  if (note.kind == "evicted") {
    evicted(*note.member, note.detail);
  }
  if (note.kind == "waiting" || note.kind == "resumed") {
    pace_checker_.on_fault(queue_.now());
  }
  result_.joins += note.kind == "joined" ? 1 : 0;
  result_.leaves += note.kind == "left" ? 1 : 0;
  result_.evictions += note.kind == "evicted" ? 1 : 0;
  if (note.kind == "corrupted") {
    ++result_.expelled;
    corruption_checker_.on_expelled(*note.member, healthy_members());
  }
  if (note.kind == "straggler") {
    budget_checker_.on_event();
  }
  if (note.kind == "rebalance") {
    ++result_.rebalances;
    budget_checker_.on_event();
    rebalance_checker_.on_rebalance();
  } else if (note.kind == "view") {
    rebalance_checker_.on_view();
  }
  result_.fingerprint =
      mix64(result_.fingerprint ^ static_cast<std::uint64_t>(queue_.now().ns) ^ note.kind.size());
  tell(note.kind, note.member, note.detail);
}

void SimWorld::tell(const std::string& what, std::optional<MemberId> member,
                    const std::string& detail) {
  result_.history.push_back(history_line(queue_.now() - Instant{}, what, member, detail));
}

void SimWorld::evicted(MemberId member, const std::string& reason) {
  // If two members do not reach each other, other members leave the group first. They blame
  // different members, and it cannot always be decided which one is the culprit.
  const auto is_member = [this](MemberId id) {
    return std::find(last_members_.begin(), last_members_.end(), id) != last_members_.end();
  };
  const bool has_bad_link = std::any_of(
      bad_links_.begin(), bad_links_.end(),
      [&](const auto& link) { return is_member(link.first) && is_member(link.second); });
  const bool has_failed_alone =
      std::any_of(last_members_.begin(), last_members_.end(),
                  [this](MemberId id) { return failed_alone_.contains(worker_of_.at(id)); });
  const SimWorker& worker = *workers_[worker_of_.at(member)];
  const bool stood_still = worker.frozen_until() > Instant{} || !worker.alive();
  eviction_checker_.on_evicted(member, reason,
                               {.links_broke = has_bad_link,
                                .failed_alone = has_failed_alone,
                                .stood_still = stood_still,
                                .brought_state = !commit_checker_.has_worked(member)});
}

/// Something other than a planned join or leave has disturbed the job.
void SimWorld::disturbed() {
  budget_checker_.on_event();
  pace_checker_.on_fault(queue_.now());
}

bool SimWorld::misses_this_sum(MemberId observer) {
  if (!next_sum_is_missed_ || !worker_at(observer).observes()) {
    return false;
  }
  next_sum_is_missed_ = false;
  disturbed();
  tell("misses_sum", observer, "");
  return true;
}

// --- wrong states: whether another member could have detected them

std::size_t SimWorld::healthy_members() const {
  return static_cast<std::size_t>(
      std::count_if(last_members_.begin(), last_members_.end(), [this](MemberId id) {
        const SimWorker& worker = *workers_[worker_of_.at(id)];
        return worker.alive() && !worker.observes() && !corruption_checker_.is_wrong(id);
      }));
}

/// Observers do not count, because they do not compare states. has_compared() asks about the
/// member's role in this step: it may have become a working member since.
bool SimWorld::is_anyone_right(std::uint64_t step, const View& view, MemberId but) {
  const SimGroup& group = group_of(view);
  return std::any_of(view.members.begin(), view.members.end(), [&](const ViewMember& member) {
    return member.id != but && group.has_compared(member.id, step) &&
           !corruption_checker_.is_wrong(member.id);
  });
}

void SimWorld::on_wrong_commit(MemberId member, std::uint64_t step, const View& view) {
  if (is_anyone_right(step, view, member)) {
    corruption_checker_.on_wrong_commit(member);
  }
}

bool SimWorld::comes_from_wrong(const ToySum& sum, std::uint64_t step, const View& view,
                                MemberId observer) {
  const ToyState right = commit_checker_.expected(step - 1);
  return corruption_checker_.any() && !is_anyone_right(step, view, observer) &&
         update(right, sum) != commit_checker_.expected(step);
}

}  // namespace mayfly::sim
