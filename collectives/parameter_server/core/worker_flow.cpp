#include "collectives/parameter_server/core/worker_flow.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace mayfly::parameter_server {

WorkerFlow::WorkerFlow(std::uint32_t shards) : shards_(shards) {
  ENSURE(shards > 0, "there is at least one shard");
}

void WorkerFlow::granted(const Lease& lease) {
  if (lease.serial == received_ + 1) {  // after a gap the missing leases are sent again, in order
    received_ = lease.serial;
    rewind_ = lease.rewind;
    leases_.push_back({lease, 0, false});
  }
}

void WorkerFlow::answered(std::uint32_t shard, std::uint64_t version) {
  ENSURE(shards_[shard].asked, "only expected answers are taken");
  shards_[shard].asked.reset();
  shards_[shard].arrived = version;
}

void WorkerFlow::reconnected(std::uint32_t shard) {
  shards_[shard].asked.reset();
  for (auto lease = unanswered_.rbegin(); lease != unanswered_.rend(); ++lease) {
    leases_.push_front({lease->lease, 0, true});
  }
  unanswered_.clear();
  for (Held& held : leases_) {
    held.pushed = 0;
  }
  rest_reported_through_ = 0;  // Rest is sent again
}

bool WorkerFlow::may_greet(std::uint32_t shard) const {
  return shard > 0 || shards_[0].is_known ||
         std::all_of(shards_.begin() + 1, shards_.end(),
                     [](const Shard& other) { return other.is_known; });
}

void WorkerFlow::recorded() {
  ENSURE(!leases_.empty() && leases_.front().lease.kind == LeaseKind::kSnapshot,
         "a snapshot was asked for");
  finish(leases_.front().lease.serial);
  leases_.pop_front();
}

bool WorkerFlow::awaits_answers() const {
  return std::any_of(shards_.begin(), shards_.end(),
                     [](const Shard& shard) { return shard.asked.has_value(); });
}

bool WorkerFlow::is_ready(const Lease& lease) const {
  if (lease.kind != LeaseKind::kCompute) {
    return true;
  }
  if (!lease.version) {
    return has_parameters_ && !awaits_answers();
  }
  return has_parameters_ && std::all_of(shards_.begin(), shards_.end(), [&](const Shard& shard) {
           return shard.held == *lease.version;
         });
}

bool WorkerFlow::is_repeatable(const Lease& lease) const {
  return has_parameters_ && lease.kind == LeaseKind::kCompute && !lease.version;
}

/// Some shard has begun the next round, so all shards have the slices of this one: the answers of
/// all shards to one question are adopted together.
bool WorkerFlow::is_past(const Lease& lease) const {
  return has_parameters_ && lease.version &&
         std::any_of(shards_.begin(), shards_.end(),
                     [&](const Shard& shard) { return shard.held > *lease.version; });
}

void WorkerFlow::finish(std::uint64_t serial) {
  over_.insert(serial);
  while (over_.erase(done_through_ + 1) > 0) {
    ++done_through_;
  }
}

void WorkerFlow::drop_past() {
  std::erase_if(leases_, [this](const Held& held) {
    const bool past = is_past(held.lease);
    if (past) {
      finish(held.lease.serial);
    }
    return past;
  });
}

std::optional<FlowAction> WorkerFlow::adopt() {
  flow::Adopt adopted;
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].arrived) {
      adopted.shards.push_back(i);
    }
  }
  if (adopted.shards.empty() || awaits_answers()) {
    return std::nullopt;
  }
  for (Shard& shard : shards_) {
    shard.held = shard.arrived.value_or(shard.held);
    shard.arrived.reset();
  }
  has_parameters_ = has_parameters_ || adopted.shards.size() == shards_.size();
  for (const Held& held : unanswered_) {
    finish(held.lease.serial);
  }
  unanswered_.clear();
  return FlowAction(std::move(adopted));
}

std::uint64_t WorkerFlow::ask(const std::vector<std::uint32_t>& shards, std::uint64_t version) {
  ++questions_;
  for (const std::uint32_t shard : shards) {
    shards_[shard].asked = questions_;
    shards_[shard].asked_for = version;
  }
  return questions_;
}

/// True if an answer that has arrived or will arrive from this shard shows that the shard has the
/// slice that is pushed now. An answer to an earlier question shows that only if it is for the
/// version that this push leads to.
bool WorkerFlow::shows_arrival(const Shard& shard, std::uint64_t version) {
  const bool is_awaited = shard.asked && shard.asked_for >= version;
  const bool has_arrived = shard.arrived && *shard.arrived >= version;
  return version > 0 && (is_awaited || has_arrived);
}

FlowAction WorkerFlow::compute(std::size_t place) {
  Held& held = leases_[place];
  const Lease lease = held.lease;
  flow::Compute action;
  action.slice = lease.first + held.pushed;
  action.clock = lease.clock + ++held.pushed;
  action.at_once = lease.at_once;
  if (held.pushed < lease.count) {
    return action;
  }
  action.version = lease.version ? *lease.version + 1 : 0;
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    if (!shows_arrival(shards_[i], action.version)) {
      shards_[i].arrived.reset();
      action.pulls.push_back(i);
    }
  }
  action.question = ask(action.pulls, action.version);
  unanswered_.push_back(held);
  leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(place));
  action.wants_lease = leases_.empty();
  return action;
}

std::optional<FlowAction> WorkerFlow::work() {
  drop_past();
  for (std::size_t i = 0; i < leases_.size(); ++i) {
    const Lease& lease = leases_[i].lease;
    if (!is_ready(lease)) {
      continue;
    }
    if (lease.kind == LeaseKind::kCompute) {
      return compute(i);
    }
    if (lease.kind == LeaseKind::kProbe) {
      const flow::Probe probe{lease.first, lease.count};
      finish(lease.serial);
      leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(i));
      return FlowAction(probe);
    }
    if (i == 0 && unanswered_.empty()) {
      return lease.kind == LeaseKind::kSnapshot ? FlowAction(flow::Snapshot{lease.first})
                                                : FlowAction(flow::Over{});
    }
  }
  return std::nullopt;
}

/// Requests parameters for leases that cannot begin without them. The version that a step has asked
/// for may become available only after another lease, of the step before, is done: for that lease
/// the present version is requested.
std::optional<FlowAction> WorkerFlow::fetch() {
  for (const Held& held : leases_) {
    const std::uint64_t version = held.lease.version.value_or(0);
    const bool asks_anew = !held.lease.version && unanswered_.empty();
    std::vector<std::uint32_t> missing;
    for (std::uint32_t i = 0; i < shards_.size(); ++i) {
      const bool awaits_step = shards_[i].asked && shards_[i].asked_for > 0;
      const bool lacks = !has_parameters_ || shards_[i].held < version || awaits_step;
      const bool comes =
          (shards_[i].asked && !(asks_anew && awaits_step)) || shards_[i].arrived.has_value();
      if (held.lease.kind == LeaseKind::kCompute && lacks && !comes) {
        missing.push_back(i);
      }
    }
    if (!missing.empty()) {
      const std::uint64_t question = ask(missing, version);
      return FlowAction(flow::Pull{std::move(missing), version, held.lease.clock, question});
    }
  }
  return std::nullopt;
}

FlowAction WorkerFlow::next() {
  drop_past();
  for (std::size_t i = 0; i < leases_.size(); ++i) {
    // This comes before adopting or waiting: other workers may wait for a slice that only these
    // parameters can produce, and shards that lack a push delay the answers to others.
    const Held& held = leases_[i];
    if ((held.lease.version && is_ready(held.lease)) || (held.again && is_repeatable(held.lease))) {
      return compute(i);
    }
  }
  if (auto action = adopt()) {
    return std::move(*action);
  }
  if (auto action = work()) {
    return std::move(*action);
  }
  if (auto action = fetch()) {
    return std::move(*action);
  }
  if (leases_.empty() && unanswered_.empty() && !awaits_answers() &&
      done_through_ > rest_reported_through_) {
    rest_reported_through_ = done_through_;
    has_parameters_ = false;  // they become outdated meanwhile
    return flow::Rest{};
  }
  return flow::Wait{};
}

}  // namespace mayfly::parameter_server
