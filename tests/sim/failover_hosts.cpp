#include <algorithm>

#include "base/check.hpp"
#include "tests/sim/failover_parts.hpp"

// Coordinators, their logs, and the connections to them.

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kTick = milliseconds(10);
constexpr Duration kMessageDelay = milliseconds(3);
constexpr Duration kUnacknowledged = milliseconds(400);  // until a sender gives up its peer

CoordinatorOptions options_of(const FailoverScenario& scenario, bool is_standby,
                              std::uint64_t identity) {
  CoordinatorOptions options;
  options.view_max = scenario.spares == 0 ? kMembersMax : scenario.workers - scenario.spares;
  options.initial_workers = scenario.workers - scenario.spares;
  options.min_workers = scenario.min_workers;
  options.observe_from_bytes = 1;
  options.last_step = Step{scenario.steps};
  options.stop_timeout = seconds(2);
  options.seed = scenario.seed;
  options.identity = identity;
  options.min_workers_timeout = scenario.min_workers_timeout;
  options.resume_timeout = scenario.resume_timeout;
  options.quorum_timeout = scenario.quorum_timeout;
  options.delta_from_members = scenario.delta_from_members;
  options.quorum = scenario.standbys > 0;
  options.standby = is_standby;
  if (!is_standby && scenario.broken == BrokenCore::kIgnoresQuorum) {
    options.quorum = false;
  }
  if (scenario.broken == BrokenCore::kGivesUpEarly) {
    options.min_workers_timeout /= 2;
  }
  return options;
}

}  // namespace

void FailoverWorld::start_host(std::size_t index) {
  Host& host = *hosts_[index];
  if (host.has_ended) {
    return;
  }
  Result<LogContents> read = ViewLog::replay(host.log);
  if (!read.ok()) {
    violations_.add("the log cannot be read: " + read.error().detail);
    return;
  }
  LogContents contents = std::move(read).value();
  if (scenario_.broken == BrokenCore::kBelievesTornLogs && contents.dropped_bytes > 0 &&
      contents.view) {
    contents.view->committed = next(contents.view->committed);
  }
  if (scenario_.broken == BrokenCore::kReusesMemberIds) {
    contents.incarnation = Incarnation{};
  }
  if (contents.view) {
    incarnations_.on_known(*contents.view, "the log");
  }
  host.ends_again = host.ends_again || contents.ended.has_value();
  host.log = ViewLog::compact(contents);
  if (scenario_.broken == BrokenCore::kForgetsPauses) {
    contents.is_paused = false;
  }
  if (scenario_.broken == BrokenCore::kForgetsTheEnd) {
    contents.ended.reset();
  }
  host.durable_bytes = host.log.size();
  const bool is_standby = index > 0 && !contents.view && !contents.ended;
  const CoordinatorOptions options = options_of(scenario_, is_standby, random_.bits() | 1);
  host.core = std::make_unique<Coordinator>(options, contents);
  if (scenario_.clock_drift_per_mille > 0) {
    const auto most = static_cast<std::int64_t>(scenario_.clock_drift_per_mille);
    const auto gain =
        static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(2 * most + 1)));
    host.clock = SimClock(draw(seconds(3600)), gain - most);
  }
  host.last_led = queue_.now();
  host.leads = false;
  tell("coordinator " + std::to_string(index) + " starts");
  tick(index, ++host.life);
  const bool kills = scenario_.crash_on_return && scenario_.worker_crash_every > Duration::zero();
  if (kills && !is_calm_ && !workers_.empty() && chance(2)) {
    after(draw(milliseconds(300)), [this] {
      if (!is_calm_) {
        kill_somebody();
      }
    });
  }
}

void FailoverWorld::tick(std::size_t index, std::uint64_t life) {
  if (!hosts_[index]->core || hosts_[index]->life != life) {
    return;
  }
  if (const Duration rest = suspension_of(index); rest > Duration::zero()) {
    after(rest, [this, index, life] { tick(index, life); });
    return;
  }
  handle(index, coordinator_event::Tick{});
  after(hosts_[index]->clock.real(kTick), [this, index, life] { tick(index, life); });
}

void FailoverWorld::crash_host(std::size_t index) {
  Host& host = *hosts_[index];
  host.core.reset();
  host.effects_to_live.reset();
  host.link_of.clear();
  ++result_.crashes;
  budget_.on_event();
  if (scenario_.loses_log_tails && chance(2)) {
    host.log.resize(host.durable_bytes + random_.below(host.log.size() - host.durable_bytes + 1));
  }
  tell("coordinator " + std::to_string(index) + " crashes");
  for (std::size_t link = 0; link < links_.size(); ++link) {
    if (links_[link].host == index && links_[link].life == host.life) {
      links_[link].open_at_host = false;
      if (!is_cut(index, node_of_worker(links_[link].worker))) {
        close_at_worker(link, draw(milliseconds(5)));
      }
    }
  }
  const std::uint64_t life = host.life;
  after(draw(scenario_.down_max), [this, index, life] {
    if (!hosts_[index]->core && hosts_[index]->life == life) {
      start_host(index);
    }
  });
}

/// A coordinator that cannot write its term or its first view to the disk could forget it. It ends
/// as if it were killed.
bool FailoverWorld::must_not_lead(const CoordinatorEffect& effect) const {
  const auto* record = std::get_if<coordinator_effect::Append>(&effect);
  return queue_.now() < disk_full_until_ && record != nullptr && record->durable &&
         !std::holds_alternative<log_record::JobEnded>(record->record);
}

void FailoverWorld::append(Host& host, const coordinator_effect::Append& append, bool torn) {
  if (queue_.now() < disk_full_until_) {
    ++result_.unwritten;
    return;
  }
  ViewLog log(host.log.size());
  Bytes bytes = log.add(append.record);
  if (torn) {
    if (chance(2)) {
      bytes[random_.below(bytes.size())] ^= static_cast<std::byte>(1u << random_.below(8));
    } else {
      bytes.resize(random_.below(bytes.size()));
    }
  }
  if (torn && host.log.empty()) {
    return;  // nothing was written
  }
  host.log.insert(host.log.end(), bytes.begin(), bytes.end());
  if (append.durable && !torn) {
    host.durable_bytes = host.log.size();
  }
}

/// Now, or when the suspended coordinator continues and reads what has arrived, in that order.
void FailoverWorld::when_read(std::size_t index, std::function<void()> what) {
  const Duration rest = suspension_of(index);
  if (rest == Duration::zero()) {
    what();
    return;
  }
  after(rest, [this, index, life = hosts_[index]->life, what = std::move(what)] {
    if (hosts_[index]->life == life) {
      what();
    }
  });
}

void FailoverWorld::give(std::size_t index, CoordinatorEvent event) {
  if (suspension_of(index) == Duration::zero()) {
    handle(index, event);
  } else {
    when_read(index, [this, index, event = std::move(event)] { handle(index, event); });
  }
}

void FailoverWorld::handle(std::size_t index, const CoordinatorEvent& event) {
  Host& host = *hosts_[index];
  if (!host.core || host.has_ended) {
    return;
  }
  for (const CoordinatorEffect& effect : host.core->handle(host.clock.at(queue_.now()), event)) {
    if (must_not_lead(effect)) {
      tell("coordinator " + std::to_string(index) + " cannot write its log");
      crash_host(index);
      return;
    }
    if (host.effects_to_live && (*host.effects_to_live)-- == 0) {
      const auto* record = std::get_if<coordinator_effect::Append>(&effect);
      if (record != nullptr) {
        append(host, *record, true);
      }
      crash_host(index);
      return;
    }
    carry_out(index, effect);
  }
  // A coordinator that still waits for other members has stopped the members that returned to it,
  // so it does not lead the job.
  const JobPhase phase = host.core->phase();
  host.leads = phase == JobPhase::kRunning || phase == JobPhase::kPaused ||
               (phase == JobPhase::kStopping && host.leads);
  if (host.leads) {
    host.last_led = queue_.now();
  }
}

void FailoverWorld::carry_out(std::size_t index, const CoordinatorEffect& effect) {
  using namespace coordinator_effect;
  Host& host = *hosts_[index];
  if (const auto* record = std::get_if<Append>(&effect)) {
    const auto* view = std::get_if<log_record::ViewPublished>(&record->record);
    if (view != nullptr && incarnation_of(view->view.id) == host.core->incarnation()) {
      incarnations_.on_published(view->view);
    }  // else it was taken over
    append(host, *record, false);
  } else if (const auto* accept = std::get_if<Accept>(&effect)) {
    const std::size_t link = accept->connection - 1;
    const auto old = host.link_of.find(accept->member);
    if (old != host.link_of.end() && old->second != link) {
      links_[old->second].open_at_host = false;
    }
    host.link_of[accept->member] = link;
    links_[link].member = accept->member;
    worker_of_[accept->member] = links_[link].worker;
    incarnations_.on_member_id(accept->member, links_[link].worker);
  } else if (const auto* refuse = std::get_if<Refuse>(&effect)) {
    to_worker(refuse->connection - 1, Refused{refuse->reason, refuse->refusal});
    links_[refuse->connection - 1].open_at_host = false;
  } else if (const auto* send = std::get_if<Send>(&effect)) {
    const auto link = host.link_of.find(send->member);
    if (link != host.link_of.end()) {
      to_worker(link->second, send->message);
    }
  } else if (const auto* to_all = std::get_if<SendToAll>(&effect)) {
    for (const MemberId member : to_all->members) {
      carry_out(index, Send{member, to_all->message});
    }
  } else if (const auto* disconnect = std::get_if<Disconnect>(&effect)) {
    const auto link = host.link_of.find(disconnect->member);
    if (link != host.link_of.end()) {
      links_[link->second].open_at_host = false;
      close_at_worker(link->second, kMessageDelay + milliseconds(2));
      host.link_of.erase(link);
    }
  } else if (const auto* view = std::get_if<ViewPublished>(&effect)) {
    published(index, view->view);
  } else if (const auto* text = std::get_if<Note>(&effect)) {
    note(index, *text);
  } else if (const auto* end = std::get_if<JobEnded>(&effect)) {
    ended(index, end->outcome);
  }
}

void FailoverWorld::published(std::size_t index, const View& view) {
  ++result_.views;
  budget_.on_view();
  violations_.expect(index != 0 || !hosts_[0]->ends_again, [] {
    return std::string("a view is published though the job's end is on record");
  });
  if (scenario_.crash_on_view && !is_calm_ && chance(3)) {
    crash_soon(index);
    if (scenario_.cut_every > Duration::zero() && chance(2)) {
      cut_some_links();
    }
    if (scenario_.worker_crash_every > Duration::zero() && chance(2)) {
      kill_somebody();
    }
  }
  // Without cuts all living members have returned in time, so the steps that they have committed
  // count, unless the view is not in the log because the disk was full.
  if (scenario_.cut_every == Duration::zero() && scenario_.disk_full_every == Duration::zero() &&
      scenario_.resume_timeout >= seconds(2)) {
    for (const auto& worker : workers_) {
      const bool holds_more = worker->alive && worker->has_state && !worker->is_left_behind &&
                              worker->committed > value(view.committed);
      if (holds_more && !is_known_to(index, *worker)) {
        worker->is_left_behind = true;
        continue;
      }
      violations_.expect(!holds_more, [&] {
        return "view " + std::to_string(value(view.id)) + " undoes step " +
               std::to_string(worker->committed) + ", which a living member has";
      });
    }
  }
}

/// With standbys the living members need not all connect to the same coordinator. A majority of a
/// view may go on with one coordinator, while a minority waits at another one until that one sends
/// it elsewhere. The first coordinator cannot distinguish steps that only the minority has
/// committed from steps of dead members, so they are computed again. But it must not ignore a
/// member that has reported its state to it.
bool FailoverWorld::is_known_to(std::size_t index, const Worker& worker) const {
  if (scenario_.standbys == 0) {
    return true;
  }
  if (!worker.link) {
    return false;
  }
  const Link& link = links_[*worker.link];
  return link.host == index && link.life == hosts_[index]->life && link.has_told_state;
}

void FailoverWorld::ended(std::size_t index, Outcome outcome) {
  hosts_[index]->has_ended = true;
  is_over_ = true;
  if (outcome == Outcome::kTooFewWorkers) {
    ++result_.gave_up;
    const SimClock fast({}, scenario_.clock_drift_per_mille);
    const Duration alone = queue_.now() - hosts_[index]->last_led;
    const bool is_long = alone >= fast.real(scenario_.min_workers_timeout);
    violations_.expect(is_long || hosts_[index]->ends_again, [alone] {
      return "the job is given up for want of members after " +
             std::to_string(static_cast<long>(to_ms(alone))) + " ms without them";
    });
    return;
  }
  result_.stopped += outcome == Outcome::kStopped ? 1 : 0;
  const bool is_asked = outcome == Outcome::kStopped && is_stop_asked_;
  violations_.expect(outcome == Outcome::kDone || is_asked,
                     [&] { return std::string("the job ended, but is not done"); });
}

void FailoverWorld::note(std::size_t index, const coordinator_effect::Note& note) {
  const bool is_in_charge = note.kind == "in_charge";
  is_paused_ = is_paused_ || (note.kind == "paused" && index == 0);
  result_.undone += note.kind == "restarted" ? 1 : 0;
  if (note.kind == "evicted") {
    const bool has_cuts = result_.cuts > 0;
    evictions_.on_evicted(
        *note.member, note.detail,
        {.links_broke = has_cuts,
         .stood_still = has_cuts,
         .was_unheard = has_cuts || result_.crashes > 0 || result_.suspensions > 0,
         .brought_state = !workers_[worker_of_.at(*note.member)]->has_state});
  }
  result_.resumed += is_in_charge ? 1 : 0;
  result_.takeovers += is_in_charge && index > 0 ? 1 : 0;
  tell("coordinator " + std::to_string(index) + ": " + note.kind + ' ' +
       (note.member ? std::to_string(value(*note.member)) + ' ' : "") + note.detail);
}

// --- connections: FIFO in each direction; a sender notices late that its peer does not answer

void FailoverWorld::to_worker(std::size_t index, const Message& message) {
  Link& link = links_[index];
  if (!link.open_at_host) {
    return;
  }
  link.last_down = std::max(link.last_down, queue_.now() + draw(kMessageDelay));
  after(link.last_down - queue_.now(), [this, index, bytes = encode(message)] {
    Link& arrived = links_[index];
    if (is_cut(arrived.host, node_of_worker(arrived.worker))) {
      close_at_host(index, draw(kUnacknowledged));
    } else if (arrived.open_at_worker && workers_[arrived.worker]->alive) {
      Result<Message> decoded = decode(bytes);
      ENSURE(decoded.ok(), "what we encode can be decoded");
      Message told = std::move(decoded).value();
      on_message(arrived.worker, told);
    }
  });
}

void FailoverWorld::to_host(std::size_t index, const Message& message) {
  Link& link = links_[index];
  if (!link.open_at_worker) {
    return;
  }
  link.last_up = std::max(link.last_up, queue_.now() + draw(kMessageDelay));
  after(link.last_up - queue_.now(), [this, index, bytes = encode(message)] {
    Link& arrived = links_[index];
    const Host& host = *hosts_[arrived.host];
    if (is_cut(node_of_worker(arrived.worker), arrived.host)) {
      close_at_worker(index, draw(kUnacknowledged));
    } else if (!host.core || host.life != arrived.life || !arrived.open_at_host) {
      close_at_worker(index, draw(kMessageDelay));
    } else {
      Result<Message> decoded = decode(bytes);
      ENSURE(decoded.ok(), "what we encode can be decoded");
      Message told = std::move(decoded).value();
      auto* resume = std::get_if<Resume>(&told);
      if (resume != nullptr || std::holds_alternative<Ready>(told)) {
        when_read(arrived.host, [this, index] { links_[index].has_told_state = true; });
      }
      if (resume != nullptr && resume->view && resume->last &&
          scenario_.broken == BrokenCore::kForgetsCommits) {
        resume->committed = resume->last->committed = resume->view->committed;
        resume->last->held = {};
      }
      if (resume != nullptr && resume->view) {
        incarnations_.on_known(*resume->view, "member " + std::to_string(value(arrived.member)));
        if (arrived.host > 0 && scenario_.broken == BrokenCore::kTakesOverAlone) {
          auto& members = resume->view->members;
          std::erase_if(members, [&](const auto& m) { return m.id != arrived.member; });
          resume->view->source = Rank{0};
          resume->view->behind.clear();
          resume->view->bases.clear();
        }
      }
      give(arrived.host, coordinator_event::Received{arrived.member, std::move(told)});
    }
  });
}

void FailoverWorld::close_at_worker(std::size_t index, Duration delay) {
  after(delay, [this, index] {
    Link& link = links_[index];
    if (std::exchange(link.open_at_worker, false) && workers_[link.worker]->alive &&
        workers_[link.worker]->link == index) {
      on_lost(link.worker);
    }
  });
}

void FailoverWorld::close_at_host(std::size_t index, Duration delay) {
  after(delay, [this, index] {
    Link& link = links_[index];
    Host& host = *hosts_[link.host];
    const bool is_same_life = host.core && host.life == link.life;
    if (!std::exchange(link.open_at_host, false) || !is_same_life || link.member == MemberId{}) {
      return;
    }
    const auto place = host.link_of.find(link.member);
    if (place != host.link_of.end() && place->second == index) {
      host.link_of.erase(place);
      give(link.host, coordinator_event::ConnectionLost{link.member, "reset"});
    }
  });
}

}  // namespace mayfly::sim
