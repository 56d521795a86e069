#include "tests/sim/parameter_server_members.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr std::uint64_t kLatencyUs = 100;
constexpr std::uint64_t kLoadUs = 2000;
constexpr Duration kServerTick = milliseconds(10);
constexpr Duration kReportTimeout = seconds(60);  // as in the product

constexpr const char* kWorker = "worker";
constexpr const char* kServer = "server";
constexpr const char* kBoth = "worker with a server";

CoordinatorOptions coordinator_options(const PsOptions& options) {
  CoordinatorOptions made;
  made.initial_workers = options.workers + (options.colocated ? 0 : options.servers());
  made.counts_as_worker = [](const std::string& address) { return address != kServer; };
  made.steps_need_all_members = options.sabotage == PsSabotage::kJudgesSteps;
  made.stop_timeout = options.stop_timeout;
  return made;
}

}  // namespace

PsMembers::PsMembers(const PsOptions& options, EventQueue& queue, RandomStream& random, Hooks hooks)
    : options_(options),
      queue_(queue),
      random_(random),
      hooks_(std::move(hooks)),
      coordinator_(coordinator_options(options)) {
  tick();
}

Duration PsMembers::some_time() {
  return std::chrono::microseconds(random_.below(kLatencyUs));
}

void PsMembers::tick() {
  for (const auto& [id, process] : processes_) {
    if (process->is_alive && process->is_known) {
      give(coordinator_event::SentinelBeat{id});
    }
  }
  give(coordinator_event::Tick{});
  if (!has_ended()) {
    queue_.after(kServerTick, [this] { tick(); });
  }
}

MemberId PsMembers::join(bool computes, bool serves) {
  Hello hello;
  hello.address = computes && serves ? kBoth : computes ? kWorker : kServer;
  give(coordinator_event::WorkerConnected{processes_.size() + 1, hello});
  const MemberId id = accepted_;
  // Servers report one step less than workers, as in the product.
  const Step committed{computes ? 1U : 0U};
  processes_.emplace(id, std::make_unique<Process>(Welcome{id}, committed, Step{options_.steps}));
  queue_.after(std::chrono::microseconds(random_.below(kLoadUs)), [this, id] {
    tell(id, member_event::Loaded{Step{0}, 0});
  });
  return id;
}

void PsMembers::lose(MemberId id, bool is_dead) {
  process(id).is_alive = !is_dead;
  queue_.after(some_time() + std::chrono::microseconds(200 + random_.below(1000)), [this, id] {
    process(id).is_known = false;
    give(coordinator_event::ConnectionLost{id, "reset"});
  });
}

void PsMembers::drain(MemberId id) {
  tell(id, member_event::LeaveAsked{"SIGTERM"});
}

void PsMembers::pause(bool pause) {
  hooks_.tell(pause ? "pause" : "resume");
  give(coordinator_event::PauseAsked{pause});
}

void PsMembers::stop() {
  hooks_.tell("stop");
  give(coordinator_event::StopAsked{"asked"});
}

/// Waits for an answer from the store of the newest view that the process has entered.
void PsMembers::wait_for_reports(MemberId id) {
  const ViewId view = process(id).view;
  process(id).reports = view;
  const std::string key = "reports of " + std::to_string(value(id));
  send_up(id, StoreSet{view, key, {}});
  send_up(id, StoreGet{view, key});
  queue_.after(kReportTimeout, [this, id, view] { end_views_up_to(id, view); });
}

void PsMembers::end_views_up_to(MemberId id, ViewId view) {
  Process& waiting = process(id);
  if (waiting.reports && *waiting.reports <= view) {
    waiting.reports.reset();
    hooks_.reports_taken(id);
  }
}

// --- the coordinator

void PsMembers::give(const CoordinatorEvent& event) {
  std::vector<CoordinatorEffect> effects = coordinator_.handle(queue_.now(), event);
  for (CoordinatorEffect& effect : effects) {
    carry_out(effect);
  }
  watch_changes();
}

void PsMembers::carry_out(CoordinatorEffect& effect) {
  if (const auto* accepted = std::get_if<coordinator_effect::Accept>(&effect)) {
    accepted_ = accepted->member;
  } else if (auto* sent = std::get_if<coordinator_effect::Send>(&effect)) {
    send_down(sent->member, std::move(sent->message));
  } else if (const auto* all = std::get_if<coordinator_effect::SendToAll>(&effect)) {
    for (const MemberId id : all->members) {
      send_down(id, all->message);
    }
  } else if (const auto* view = std::get_if<coordinator_effect::ViewPublished>(&effect)) {
    ++views_;
    hooks_.published(view->view);
  } else if (const auto* fact = std::get_if<coordinator_effect::Note>(&effect)) {
    note(*fact);
  } else if (const auto* end = std::get_if<coordinator_effect::JobEnded>(&effect)) {
    outcome_ = end->outcome;
    hooks_.tell("the job has ended: " + std::to_string(static_cast<int>(end->outcome)));
  }
}

/// Records members that were dismissed without a cause among the injected faults.
void PsMembers::note(const coordinator_effect::Note& fact) {
  const std::string who = fact.member ? " " + std::to_string(value(*fact.member)) : "";
  hooks_.tell(fact.kind + who + (fact.detail.empty() ? "" : ": " + fact.detail));
  const bool goes = fact.kind == "evicted" || fact.kind == "lost";
  if (goes && processes_.contains(*fact.member) && process(*fact.member).is_known) {
    needless_.push_back("member" + who + " was " + fact.kind + " without a cause: " + fact.detail);
  }
}

/// Measures the time from the order to stop until the next view, or until no view is needed.
void PsMembers::watch_changes() {
  const bool is_changing = coordinator_.phase() == JobPhase::kStopping;
  if (is_changing && !changing_since_) {
    changing_since_ = queue_.now();
  } else if (!is_changing && changing_since_) {
    change_max_ = std::max(change_max_, queue_.now() - *changing_since_);
    changing_since_.reset();
  }
}

void PsMembers::send_down(MemberId id, Message message) {
  if (!processes_.contains(id)) {
    return;  // the Welcome, with which the process was constructed
  }
  Process& to = process(id);
  to.last_down = std::max(to.last_down, queue_.now() + some_time());
  queue_.after(to.last_down - queue_.now(),
               [this, id, shared = std::make_shared<Message>(std::move(message))] {
                 if (const auto* value = std::get_if<StoreValue>(shared.get())) {
                   end_views_up_to(id, value->view);
                 } else {
                   tell(id, member_event::Received{*shared});
                 }
               });
}

// --- a process

void PsMembers::send_up(MemberId id, Message message) {
  Process& from = process(id);
  from.last_up = std::max(from.last_up, queue_.now() + some_time());
  queue_.after(from.last_up - queue_.now(),
               [this, id, shared = std::make_shared<Message>(std::move(message))] {
                 if (process(id).is_alive && process(id).is_known && !is_deaf_to(id, *shared)) {
                   give(coordinator_event::Received{id, *shared});
                 }
               });
}

bool PsMembers::is_deaf_to(MemberId id, const Message& message) const {
  return options_.sabotage == PsSabotage::kDeafToTheStopped &&
         std::holds_alternative<StoreGet>(message) &&
         processes_.at(id)->machine.needs_coordinator();
}

void PsMembers::say(MemberId id, engine::StopAnswers::Answer answer) {
  if (answer) {
    tell(id, member_event::TrainerStopped{*std::move(answer)});
  }
}

void PsMembers::tell(MemberId id, const MemberEvent& event) {
  if (!process(id).is_alive) {
    return;
  }
  std::vector<MemberEffect> effects = process(id).machine.handle(event);
  for (MemberEffect& effect : effects) {
    carry_out(id, effect);
  }
}

void PsMembers::carry_out(MemberId id, MemberEffect& effect) {
  if (auto* sent = std::get_if<member_effect::Send>(&effect)) {
    send_up(id, std::move(sent->message));
  } else if (const auto* run = std::get_if<member_effect::RunView>(&effect)) {
    run_view(id, run->view);
  } else if (const auto* abort = std::get_if<member_effect::AbortGroup>(&effect)) {
    end_views_up_to(id, abort->view);
    hooks_.held(id);
    say(id, process(id).answers.stop());
  } else if (std::holds_alternative<member_effect::AskForBoundary>(effect)) {
    engine::StopAnswers::Answer answer = process(id).answers.boundary();
    hooks_.held(id);
    say(id, std::move(answer));
  } else if (const auto* leave = std::get_if<member_effect::Leave>(&effect)) {
    end_views_up_to(id, process(id).view);
    hooks_.left(id, *leave);
  }
}

/// Does the same as PsLink::run_view().
void PsMembers::run_view(MemberId id, const View& view) {
  Process& own = process(id);
  end_views_up_to(id, own.view);
  own.view = view.id;
  engine::StopAnswers::Answer answer = own.answers.begin(view.id);
  tell(id, member_event::GroupFormed{view.id});
  tell(id, member_event::StateSynced{view.id});
  tell(id, member_event::Progressed{view.id, own.answers.committed()});
  hooks_.met(id, view);
  say(id, std::move(answer));
}

void PsMembers::report(PsResult& result) const {
  result.outcome = outcome_;
  result.views = views_;
  result.change_max =
      changing_since_ ? std::max(change_max_, queue_.now() - *changing_since_) : change_max_;
  result.needless = needless_;
}

}  // namespace mayfly::sim
