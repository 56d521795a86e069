// The membership of a simulated job with parameter servers. Without a coordinator each process
// learns of a change after a separate delay. With a coordinator it learns of it from views, as in
// the product.

#include <algorithm>
#include <utility>

#include "tests/sim/parameter_server_run.hpp"

namespace mayfly::sim {

using parameter_server::ShardEventKind;

void PsRun::add_worker_on(std::uint32_t host) {
  const auto number = static_cast<std::uint32_t>(workers_.size());
  const bool serves = options_.colocated && number < options_.servers();
  const MemberId id = members_ ? members_->join(true, serves) : MemberId{workers_.size() + 1};
  auto fresh = std::make_unique<PsWorker>(options_.shards);
  fresh->id = id;
  fresh->number = number;
  fresh->host = host;
  fresh->joined = queue_.now();
  workers_.emplace(id, std::move(fresh));
  PsWorker& w = worker(id);
  if (members_) {  // the process learns of the shards with its first view
    if (serves) {
      servers_[number] = id;
    }
    return;
  }
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    w.leader[s] = shards_.leader_of(s);
  }
  roster_.insert(id);
  publish();
  greet(w);
  notice_cuts(w);
}

void PsRun::add_servers() {
  for (std::uint32_t index = 0; index < options_.servers() && !options_.colocated; ++index) {
    servers_[index] = members_->join(false, true);
  }
}

/// Greets the shards as in the product: the first shard last, after all others have accepted the
/// worker.
void PsRun::greet(PsWorker& w) {
  w.has_met = true;
  for (std::uint32_t s = 1; s < options_.shards; ++s) {
    hello(w, s);
  }
  greet_first(w);
}

void PsRun::greet_first(PsWorker& w) {
  if (w.flow.may_greet(0) && !std::exchange(w.greets_first, true)) {
    hello(w, 0);
  }
}

/// Announces the newest view to all processes, each after a separate delay.
void PsRun::publish() {
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

/// A worker learns of the newest view, in which shards may have other leaders. If the job is over
/// for the worker, it reports that to every leader.
void PsRun::learn(PsWorker& w) {
  if (!w.alive || !roster_.contains(w.id) || (w.over && !members_)) {
    return;
  }
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    if (w.leader[s] != shards_.leader_of(s)) {
      w.leader[s] = shards_.leader_of(s);
      connect_again(w, s);
      if (w.over) {
        say_bye(w, s);
      }
    }
  }
}

void PsRun::connect_again(PsWorker& w, std::uint32_t s) {
  ++w.up[s].generation;
  ++w.down[s].generation;
  w.let_in = w.let_in && s > 0;
  w.flow.reconnected(s);
  if (s > 0 || w.greets_first) {
    hello(w, s);
  }
  act(w);
}

void PsRun::took_over(std::uint32_t s) {
  if (s == 0) {
    speeds_.emplace(parameter_server::StragglerOptions{});
    speeds_->set_workers(roster_);
  }
}

// --- with a coordinator

PsMembers::Hooks PsRun::member_hooks() {
  return {[this](const elastic::View& view) { on_published(view); },
          [this](MemberId id, const elastic::View& view) { on_met(id, view); },
          [this](MemberId id) { on_held(id); },
          [this](MemberId id, const elastic::member_effect::Leave& leave) { on_left(id, leave); },
          [this](MemberId id) { on_reports_taken(id); },
          [this](std::string line) { tell(std::move(line)); }};
}

void PsRun::on_published(const elastic::View& view) {
  if (!std::exchange(has_begun_, true)) {
    plan_faults();
  }
  roster_.clear();
  for (const elastic::ViewMember& member : view.members) {
    if (workers_.contains(member.id)) {
      roster_.insert(member.id);
    }
  }
  for (const auto& [index, id] : servers_) {
    if (elastic::member_of(view, id) == nullptr) {
      shards_.declare_lost(index);
    }
  }
  result_.torn = shards_.is_torn();
  if (!result_.torn) {
    speeds_->set_workers(roster_);
    shards_.meet_later(roster_);
  }
}

std::optional<MemberId> PsRun::host_of_first_shard() {
  const auto host = servers_.find(shards_.host_of(0, shards_.leader_of(0)));
  return host == servers_.end() ? std::nullopt : std::optional(host->second);
}

/// Carries out a command of a server's process on the threads of its shards a little later.
/// Commands keep their order.
void PsRun::order(MemberId server, std::function<void()> what) {
  Instant& last = last_order_[server];
  last = std::max(last, queue_.now() + some_time());
  queue_.after(last - queue_.now(), std::move(what));
}

void PsRun::on_met(MemberId id, const elastic::View& view) {
  if (result_.torn) {
    return;
  }
  for (const auto& [index, server] : servers_) {
    if (server == id) {
      const bool is_first = host_of_first_shard() == id;
      if (is_first) {
        members_->wait_for_quiet(id);
      }
      order(id, [this, id, index = index, is_first, met = view.id] {
        shards_.meet_all(index);
        if (is_first && host_of_first_shard() == id) {  // the server still has the shard
          met_by_first_ = met;
          quiet_reported_ = true;
        }
      });
    }
  }
  if (workers_.contains(id)) {
    queue_.after(some_time(), [this, id] {
      PsWorker& w = worker(id);
      if (w.has_met || !w.alive) {
        learn(w);
        return;
      }
      for (std::uint32_t s = 0; s < options_.shards; ++s) {
        w.leader[s] = shards_.leader_of(s);
      }
      greet(w);
    });
  }
}

void PsRun::on_held(MemberId id) {
  if (!result_.torn && host_of_first_shard() == id) {
    // The order is for the replica that leads now, even if the other one leads when it is executed.
    order(id, [this, place = shards_.leader_of(0)] {
      if (shards_.at(0, place).is_alive && shards_.at(0, place).leads) {
        (void)shards_.tell(0, place, {.kind = ShardEventKind::kHold}, 0);
        quiet_reported_ = false;
      }
    });
  }
}

/// Reports that the first shard is quiet, as the product's shard does at the end of each turn.
void PsRun::check_quiet() {
  const bool forgets = options_.sabotage == PsSabotage::kForgetsToBeQuiet;
  if (!members_ || result_.torn || forgets) {
    return;
  }
  PsReplica& first = first_shard();
  if (!first.is_alive || !first.leads || !first.waiting.empty()) {
    return;
  }
  if (first.core.leases()->is_over() && !std::exchange(first.told_over, true)) {
    members_->finished(*host_of_first_shard());
  }
  if (!quiet_reported_ && first.core.leases()->is_quiet()) {
    quiet_reported_ = true;
    ++result_.quiet_moments;
    members_->quiet(*host_of_first_shard(), met_by_first_);
  }
}

void PsRun::on_left(MemberId id, const elastic::member_effect::Leave& leave) {
  if (!workers_.contains(id)) {
    return;
  }
  PsWorker& w = worker(id);
  if (leave.reason == elastic::DismissReason::kJobStopped && leave.write_checkpoint && !w.over) {
    last_checkpoint();
  }
  w.alive = false;
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    ++w.up[s].generation;
  }
  replace_the_last();
}

/// Adds a worker when there is none, like a provider.
void PsRun::replace_the_last() {
  const std::vector<MemberId> ids = living();
  const bool has_any =
      std::ranges::any_of(ids, [this](MemberId id) { return !worker(id).is_given_up; });
  if (members_ && !members_->has_ended() && !has_any && !first_is_over()) {
    add_worker();
  }
}

/// Checks the last state of a stopped job, from which it could be resumed. There is no such state
/// if the shards are not between two steps.
void PsRun::last_checkpoint() {
  std::vector<parameter_server::StateVersion> versions;
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    versions.push_back(shards_.leader(s).core.order().state());
  }
  if (!are_whole(versions, first_shard().core.plan())) {
    return;
  }
  result_.stopped_after = versions.front().slices;
  for (std::uint32_t s = 0; s < options_.shards; ++s) {
    std::vector<std::uint64_t> slices = shards_.leader(s).log.committed;
    std::ranges::sort(slices);
    for (std::uint64_t i = 0; i < slices.size(); ++i) {
      result_.wrong_snapshots += slices[i] == i && slices.size() == *result_.stopped_after ? 0 : 1;
    }
  }
}

/// The worker's record of the last state has been received, so the worker may report that the job
/// is done.
void PsRun::on_reports_taken(MemberId id) {
  PsWorker& w = worker(id);
  if (w.alive) {
    w.computes = false;
    w.flow.recorded();
    act(w);
  }
}

/// Tells a shard that the job is over for this worker.
void PsRun::say_bye(PsWorker& w, std::uint32_t s) {
  send_up(w, s,
          [this, s, i = w.leader[s]] { members_->finished(servers_.at(shards_.host_of(s, i))); });
}

}  // namespace mayfly::sim
