#include <algorithm>

#include "base/check.hpp"
#include "tests/sim/failover_parts.hpp"

// Worker processes: the product's member machine, a client that looks for a coordinator, and a toy
// trainer.

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr Duration kFailoverAfter = milliseconds(500);
constexpr Duration kRetry = milliseconds(50);
constexpr Duration kBeat = milliseconds(50);

}  // namespace

// --- the process

void FailoverWorld::add_worker() {
  workers_.push_back(std::make_unique<Worker>());
  const std::size_t index = workers_.size() - 1;
  budget_.on_event();
  workers_[index]->lost_at = queue_.now();
  connect(index);
  beat(index);
}

/// Kills a worker. Its sentinel reports that at once, or the kernel closes its sockets a bit later.
void FailoverWorld::kill_worker(std::size_t index) {
  Worker& worker = *workers_[index];
  budget_.on_event();
  worker.alive = false;
  ++worker.generation;
  if (worker.view) {
    leave(index, Duration::zero());
  }
  if (!worker.link || !worker.member) {
    return;
  }
  const std::size_t link = *worker.link;
  const std::size_t host = links_[link].host;
  const MemberId id = worker.member->id();
  tell("member " + std::to_string(value(id)) + " is killed");
  Hello who;
  worker.member->introduce(who);
  if (chance(2)) {
    for (std::size_t each = 0; each < hosts_.size(); ++each) {
      if (each == host || scenario_.sentinels_tell_all) {
        tell_of_death(index, each, who);
      }
    }
  }
  if (!is_cut(node_of_worker(index), host)) {
    close_at_host(link, milliseconds(3) + draw(milliseconds(250)));
  }
}

/// A sentinel sends its report to each coordinator of its list again and again, until the
/// coordinator has received it or the sentinel gives up.
void FailoverWorld::tell_of_death(std::size_t index, std::size_t host, const Hello& who) {
  const Duration late = scenario_.sentinels_tell_all && chance(2) ? seconds(1) : milliseconds(2);
  after(draw(late), [this, index, host, who] {
    if (hosts_[host]->core && !is_cut(node_of_worker(index), host)) {
      give(host, coordinator_event::SentinelReport{who.member, "killed", true, who.incarnation,
                                                   who.author});
    }
  });
}

void FailoverWorld::beat(std::size_t index) {
  after(kBeat, [this, index] {
    if (!workers_[index]->alive) {
      return;
    }
    if (workers_[index]->link) {
      to_host(*workers_[index]->link, Heartbeat{});
    }
    give_up_if_alone(index);
    beat(index);
  });
}

/// Gives up the search for a coordinator, like the product's client.
void FailoverWorld::give_up_if_alone(std::size_t index) {
  Worker& worker = *workers_[index];
  if (scenario_.give_up_after == Duration::zero() || !worker.member || worker.link ||
      !worker.member->needs_coordinator()) {
    worker.needy_since.reset();
    return;
  }
  worker.needy_since = worker.needy_since.value_or(queue_.now());
  if (queue_.now() - *worker.needy_since > scenario_.give_up_after) {
    give_member(index, member_event::CoordinatorGivenUp{});
  }
}

// --- looking for a coordinator

void FailoverWorld::connect(std::size_t index) {
  after(milliseconds(1) + draw(milliseconds(20)), [this, index] {
    Worker& worker = *workers_[index];
    if (!worker.alive || worker.link) {
      return;
    }
    const std::size_t host = worker.address;
    const std::size_t node = node_of_worker(index);
    const bool answers = hosts_[host]->core && suspension_of(host) == Duration::zero();
    if (!answers || is_cut(node, host) || is_cut(host, node)) {
      reconnect(index, queue_.now() - worker.lost_at > kFailoverAfter);
      return;
    }
    Link link;
    link.worker = index;
    link.host = host;
    link.life = hosts_[host]->life;
    links_.push_back(link);
    worker.link = links_.size() - 1;
    Hello hello;
    if (worker.member) {
      worker.member->introduce(hello);
      if (scenario_.broken == BrokenCore::kObeysOldIncarnations) {  // forgets the one it accepted
        hello.incarnation = hello.view == ViewId{} ? Incarnation{1} : incarnation_of(hello.view);
      }
    }
    give(host, coordinator_event::WorkerConnected{links_.size(), hello});
  });
}

void FailoverWorld::reconnect(std::size_t index, bool elsewhere, std::uint32_t skip) {
  Worker& worker = *workers_[index];
  if (elsewhere && hosts_.size() > 1) {
    worker.address = (worker.address + 1 + skip % (hosts_.size() - 1)) % hosts_.size();
  }
  after(kRetry, [this, index] { connect(index); });
}

void FailoverWorld::on_lost(std::size_t index) {
  Worker& worker = *workers_[index];
  worker.link.reset();
  worker.lost_at = queue_.now();
  if (worker.member) {
    give_member(index, member_event::CoordinatorLost{});
  }
  reconnect(index, false);
}

void FailoverWorld::on_message(std::size_t index, const Message& message) {
  Worker& worker = *workers_[index];
  if (worker.member) {
    Message told = message;
    if (auto* welcome = std::get_if<Welcome>(&told);
        welcome != nullptr && scenario_.broken == BrokenCore::kObeysOldIncarnations) {
      Hello mine;
      worker.member->introduce(mine);
      worker.obeys = welcome->incarnation;
      if (welcome->incarnation < mine.incarnation) {
        welcome->incarnation = next(mine.incarnation);
      }
    }
    give_member(index, member_event::Received{told});
    if (worker.is_new && std::holds_alternative<Welcome>(told)) {
      load(index);
    }
    return;
  }
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    worker.member.emplace(*welcome);
    incarnations_.on_obeyed(welcome->member, welcome->incarnation);
    load(index);
  } else if (std::holds_alternative<Refused>(message)) {
    links_[*worker.link].open_at_worker = false;
    worker.link.reset();
    reconnect(index, true);
  }
}

void FailoverWorld::load(std::size_t index) {
  workers_[index]->is_new = false;
  after(draw(milliseconds(60)), [this, index, life = workers_[index]->life] {
    Worker& loaded = *workers_[index];
    if (loaded.alive && loaded.life == life) {
      give_member(index, member_event::Loaded{Step{loaded.committed},
                                              scenario_.copy_takes > Duration::zero() ? 1u : 0u});
    }
  });
}

// --- the member machine

void FailoverWorld::give_member(std::size_t index, const MemberEvent& event) {
  for (const MemberEffect& effect : workers_[index]->member->handle(event)) {
    carry_out(index, effect);
    if (!workers_[index]->alive || !workers_[index]->member) {
      return;
    }
  }
}

void FailoverWorld::carry_out(std::size_t index, const MemberEffect& effect) {
  Worker& worker = *workers_[index];
  if (const auto* send = std::get_if<member_effect::Send>(&effect)) {
    Message told = send->message;
    if (auto* resume = std::get_if<Resume>(&told)) {
      resume->incarnation = worker.obeys.value_or(resume->incarnation);
      incarnations_.on_obeyed(worker.member->id(), resume->incarnation);
    }
    if (worker.link) {
      to_host(*worker.link, told);
    }
  } else if (const auto* run = std::get_if<member_effect::RunView>(&effect)) {
    ENSURE(!worker.view, "the member machine runs one view at a time");
    incarnations_.on_known(run->view, "member " + std::to_string(value(worker.member->id())));
    incarnations_.on_obeyed(worker.member->id(), incarnation_of(run->view.id));
    worker.view = run->view;
    worker.is_left_behind = false;
    ++worker.generation;
    worker.boundary = worker.contributed = worker.has_finished = false;
    begin_to_observe(index);
    enter(index);
  } else if (const auto* abort = std::get_if<member_effect::AbortGroup>(&effect)) {
    if (worker.view && worker.view->id == abort->view) {
      stop_trainer(index, false, std::nullopt);
    }
  } else if (std::holds_alternative<member_effect::AskForBoundary>(effect)) {
    worker.boundary = worker.view.has_value();
  } else if (const auto* elsewhere = std::get_if<member_effect::TryElsewhere>(&effect)) {
    if (worker.link) {
      links_[*worker.link].open_at_worker = false;
      close_at_host(*worker.link, draw(milliseconds(5)));
      worker.link.reset();
      give_member(index, member_event::CoordinatorLost{});
    }
    reconnect(index, true, elsewhere->skip);
  } else if (const auto* leave = std::get_if<member_effect::Leave>(&effect)) {
    tell("member " + std::to_string(value(worker.member->id())) + " leaves: " + leave->detail);
    if (leave->may_rejoin) {
      std::optional<Former> former = leave->former;
      if (former && scenario_.broken == BrokenCore::kForgetsWhenEvicted) {
        former = Former{former->id, former->job, Incarnation{1}, former->author, {}, false, {}};
      }
      if (leave->reason == DismissReason::kCorrupted) {
        worker.committed = 0;  // nothing that it holds may be used again
      }
      rejoin(index, former);
    } else {
      kill_worker(index);
      end_with_last_worker(leave->reason);
    }
  }
}

/// Ends the run when every worker has learned that the job is done or stopped. The coordinator
/// itself may have crashed after it told the workers and before it ended. A standby could not learn
/// that the job is done, because it has no log in this world.
void FailoverWorld::end_with_last_worker(DismissReason reason) {
  const bool any_left = std::any_of(workers_.begin(), workers_.end(),
                                    [](const auto& worker) { return worker->alive; });
  is_known_done_ = is_known_done_ || reason == DismissReason::kJobDone ||
                   (is_stop_asked_ && reason == DismissReason::kJobStopped);
  is_over_ = is_over_ || (is_known_done_ && !any_left);
}

/// The same process joins again, under its id if there is a quorum; it keeps its state, which is
/// behind.
void FailoverWorld::rejoin(std::size_t index, const std::optional<Former>& former) {
  Worker& worker = *workers_[index];
  ++result_.rejoins;
  if (worker.view) {
    leave(index, Duration::zero());
    worker.view.reset();
  }
  ++worker.generation;
  worker.held = {};
  worker.has_state = false;
  worker.copy.reset();
  if (worker.link) {
    const std::size_t link = *worker.link;
    after(milliseconds(5), [this, link] { links_[link].open_at_worker = false; });
    close_at_host(link, milliseconds(6) + draw(milliseconds(5)));
    worker.link.reset();
  }
  after(milliseconds(50) + draw(milliseconds(100)), [this, index, former] {
    Worker& fresh = *workers_[index];
    fresh.member.reset();
    ++fresh.life;
    fresh.is_new = true;
    if (former) {
      fresh.member.emplace(*former);
    }
    fresh.lost_at = queue_.now();
    connect(index);
  });
}

// --- the trainer

void FailoverWorld::in_view(std::size_t index, Duration delay, std::function<void()> event) {
  const std::uint64_t generation = workers_[index]->generation;
  after(delay, [this, index, generation, event = std::move(event)] {
    if (workers_[index]->alive && workers_[index]->generation == generation) {
      event();
    }
  });
}

void FailoverWorld::formed(std::size_t index) {
  Worker& worker = *workers_[index];
  give_member(index, member_event::GroupFormed{worker.view->id});
  if (worker.is_observer) {
    begin_step(index);
    return;
  }
  const bool is_behind = worker.committed < value(worker.view->committed);
  in_view(index, is_behind ? draw(milliseconds(20)) : Duration::zero(), [this, index, is_behind] {
    Worker& synced = *workers_[index];
    if (is_behind) {
      synced.committed = value(synced.view->committed);
      synced.held = {};
    }
    violations_.expect(synced.committed == value(synced.view->committed),
                       [&] { return std::string("a member is ahead of its view"); });
    give_member(index, member_event::StateSynced{synced.view->id});
    begin_step(index);
  });
}

void FailoverWorld::begin_step(std::size_t index) {
  Worker& worker = *workers_[index];
  if (position(worker) >= scenario_.steps) {
    do_the_rest(index);
    return;
  }
  const auto self = std::find_if(worker.view->members.begin(), worker.view->members.end(),
                                 [&](const auto& m) { return m.id == worker.member->id(); });
  const MicrobatchSet assigned = worker.committed == value(worker.view->committed)
                                     ? self->first_step
                                     : MicrobatchSet::range(self->first, self->count);
  const std::uint32_t missing = assigned.minus(worker.held).count();
  worker.held = worker.held.minus(worker.held.minus(assigned));
  in_view(index, milliseconds(3) * static_cast<std::int64_t>(missing), [this, index, assigned] {
    workers_[index]->held = assigned;
    contribute(index);
  });
}

void FailoverWorld::stop_trainer(std::size_t index, bool failed, std::optional<MemberId> culprit) {
  Worker& worker = *workers_[index];
  take_copy(index);
  const bool is_finished = scenario_.end_takes == Duration::zero() && !worker.is_observer
                               ? worker.committed >= scenario_.steps
                               : worker.has_finished;
  const bool is_clean = !failed && (worker.boundary || is_finished);
  leave(index, is_clean ? milliseconds(250) : Duration::zero());
  Stopped report;
  report.view = worker.view->id;
  report.committed = Step{worker.committed};
  report.held = worker.held;
  report.observed = Step{
      worker.is_observer && worker.copy && !worker.copy->is_broken ? worker.copy->observed : 0};
  report.finished = is_finished;
  report.failed = failed;
  report.culprit = culprit;
  report.unanswered =
      culprit && is_cut(node_of_worker(index), node_of_worker(worker_of_.at(*culprit)));
  report.contributed = worker.contributed;
  worker.view.reset();
  ++worker.generation;
  in_view(index, draw(milliseconds(5)),
          [this, index, report] { give_member(index, member_event::TrainerStopped{report}); });
}

}  // namespace mayfly::sim
