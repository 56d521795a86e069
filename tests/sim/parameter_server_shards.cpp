#include "tests/sim/parameter_server_shards.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::sim {

using parameter_server::EntryVerdict;
using parameter_server::LeaderLog;
using parameter_server::LeaseTable;
using parameter_server::ShardEvent;
using parameter_server::ShardEventKind;
using parameter_server::ShardOutcome;
using parameter_server::SyncPlan;

namespace {

constexpr std::uint64_t kLatencyUs = 200;

parameter_server::DivergenceOptions divergence_of(const PsOptions& options) {
  parameter_server::DivergenceOptions divergence;
  divergence.falls_back = options.falls_back;
  divergence.uniform_loss = kUsualLoss;
  divergence.slices = options.slices_per_step;
  return divergence;
}

}  // namespace

PsShards::PsShards(const PsOptions& options, const SyncPlan& plan, EventQueue& queue,
                   RandomStream& random, Hooks hooks)
    : options_(options),
      queue_(queue),
      random_(random),
      hooks_(std::move(hooks)),
      placement_(options.shards, 1, options.followers) {
  const LeaseTable::Options desk{options.shards == 1, options.stragglers};
  for (std::uint32_t s = 0; s < options.shards; ++s) {
    Pair& pair = shards_.emplace_back();
    for (std::uint32_t i = 0; i < (options.followers ? 2U : 1U); ++i) {
      const parameter_server::ShardCore::Options core{s == 0, desk, divergence_of(options)};
      pair.push_back(std::make_unique<PsReplica>(plan, core, options.sabotage));
    }
    pair[0]->leads = true;
    pair[0]->sent = LeaderLog(options.followers);
  }
}

Duration PsShards::some_time() {
  return std::chrono::microseconds(random_.below(kLatencyUs));
}

std::uint32_t PsShards::host_of(std::uint32_t shard, std::uint32_t place) const {
  return place == 0 ? placement_.initial_leader_of(shard) : placement_.initial_follower_of(shard);
}

std::uint32_t PsShards::leader_of(std::uint32_t shard) const {
  return placement_.leader_of(shard) == placement_.initial_leader_of(shard) ? 0 : 1;
}

void PsShards::publish(const std::set<MemberId>& roster) {
  roster_ = roster;
  for (std::uint32_t s = 0; s < shards_.size(); ++s) {
    for (std::uint32_t i = 0; i < shards_[s].size(); ++i) {
      queue_.after(some_time(), [this, s, i] { meet(s, i); });
    }
  }
}

void PsShards::meet_all(std::uint32_t server) {
  for (std::uint32_t s = 0; s < shards_.size(); ++s) {
    for (std::uint32_t i = 0; i < shards_[s].size(); ++i) {
      if (host_of(s, i) == server) {
        meet(s, i);
      }
    }
  }
}

bool PsShards::forgets(const PsReplica& replica) const {
  return options_.sabotage == PsSabotage::kForgetsTheLost &&
         !std::includes(roster_.begin(), roster_.end(), replica.present.begin(),
                        replica.present.end());
}

/// Does nothing if the server is not a member any more.
void PsShards::meet(std::uint32_t shard, std::uint32_t place) {
  PsReplica& replica = at(shard, place);
  const bool is_member = !placement_.lost().contains(host_of(shard, place));
  if (!replica.is_alive || !is_member || is_torn()) {
    return;
  }
  if (place == leader_of(shard) && !std::exchange(replica.leads, true)) {
    ++takeovers_;
    if (replica.core.leases() != nullptr) {  // a new leader has not measured any worker yet
      (void)tell(shard, place, {.kind = ShardEventKind::kStragglers}, 0);
    }
    hooks_.took_over(shard);
  }
  if (!replica.leads) {
    return;
  }
  if (!placement_.follower_of(shard) && replica.sent.has_follower()) {
    replica.sent.lose_follower();
    release(replica);
  }
  if (!forgets(replica)) {
    (void)tell(shard, place, {.kind = ShardEventKind::kWorkers, .workers = roster_}, 0);
  }
  for (const MemberId id : replica.present) {
    if (!roster_.contains(id)) {
      replica.gone.insert(id);
    }
  }
  replica.present = roster_;
  for (const auto& [id, messages] : std::exchange(replica.unread, {})) {
    for (const auto& message : messages) {
      take(id, shard, place, message);
    }
  }
}

void PsShards::take(MemberId worker, std::uint32_t shard, std::uint32_t place,
                    const std::function<void()>& message) {
  PsReplica& replica = at(shard, place);
  if (!replica.is_alive) {
    return;
  }
  if (replica.leads && replica.present.contains(worker)) {
    message();
  } else if (!replica.gone.contains(worker)) {
    replica.unread[worker].push_back(message);
  }
}

std::optional<parameter_server::PushFate> PsShards::tell(std::uint32_t shard, std::uint32_t place,
                                                         const ShardEvent& event,
                                                         std::uint64_t gradient) {
  PsReplica& replica = at(shard, place);
  const ShardOutcome outcome = replica.carry_out(event, gradient);
  std::uint64_t entry = 0;
  if (replica.sent.has_follower()) {
    entry = replica.sent.add();
    forward(shard, entry, event, gradient);
  }
  std::map<MemberId, std::uint64_t> questions;
  for (const MemberId id : outcome.answers) {
    questions[id] = replica.questions[id];
  }
  const auto leave = [this, shard, grants = outcome.grants, questions,
                      version = replica.core.order().version(), model = replica.log.model] {
    hooks_.deliver(grants);
    hooks_.answer(shard, questions, version, model);
  };
  replica.waiting.add(entry, leave);
  release(replica);
  return outcome.fate;
}

void PsShards::release(PsReplica& replica) {
  const bool leaks = options_.sabotage == PsSabotage::kLeaksBeforeFollower;
  while (const auto leave = replica.waiting.next(leaks ? UINT64_MAX : replica.sent.safe())) {
    (*leave)();
  }
}

/// Sends an entry from the home replica to the follower. If the home replica dies, a random number
/// of the entries that it has sent still arrive (cut_after_).
void PsShards::forward(std::uint32_t shard, std::uint64_t entry, const ShardEvent& event,
                       std::uint64_t gradient) {
  PsReplica& home = at(shard, 0);
  home.last_sent = std::max(home.last_sent, queue_.now() + some_time());
  queue_.after(home.last_sent - queue_.now(), [this, shard, entry, gradient, event = event] {
    follow(shard, entry, event, gradient);
  });
}

void PsShards::follow(std::uint32_t shard, std::uint64_t entry, const ShardEvent& event,
                      std::uint64_t gradient) {
  PsReplica& follower = at(shard, 1);
  const auto cut = cut_after_.find(shard);
  const bool is_cut = cut != cut_after_.end() && entry > cut->second;
  if (!follower.is_alive || follower.leads || is_cut) {
    return;
  }
  ENSURE(follower.followed.judge(entry) == EntryVerdict::kNew, "entries come in order");
  const bool misses = options_.sabotage == PsSabotage::kFollowerMissesPush &&
                      event.kind == ShardEventKind::kPush && event.push.slice % 7 == 3;
  if (!misses) {
    (void)follower.carry_out(event, gradient);
  }
  follower.last_answered = std::max(follower.last_answered, queue_.now() + some_time());
  queue_.after(follower.last_answered - queue_.now(), [this, shard, entry] {
    PsReplica& home = at(shard, 0);
    if (home.is_alive) {
      ENSURE(home.sent.taken(entry).ok(), "a follower has what it was given");
      release(home);
    }
  });
}

void PsShards::report(PsResult& result) {
  const parameter_server::ShardCore& first = leader(0).core;
  const LeaseTable& desk = *first.leases();
  result.late = desk.late();
  result.mixed = desk.mixed();
  result.reissued = desk.reissued();
  result.repeats = first.repeats();
  result.done = desk.is_over();
  result.rewind = first.plan().rewound();
  result.final_version = desk.version_at(first.plan().last_slice());
  for (std::uint32_t s = 0; s < shards_.size(); ++s) {
    result.shards.push_back(std::move(leader(s).log));
    result.versions.push_back(leader(s).core.order().version());
    result.staleness.push_back(leader(s).core.order().staleness());
  }
}

bool PsShards::lose(std::uint32_t server, bool dies) {
  if (placement_.lost().contains(server)) {
    return false;
  }
  for (std::uint32_t s = 0; s < shards_.size() && dies; ++s) {
    for (std::uint32_t i = 0; i < shards_[s].size(); ++i) {
      PsReplica& replica = at(s, i);
      replica.is_alive = replica.is_alive && host_of(s, i) != server;
    }
    if (placement_.initial_leader_of(s) == server && !cut_after_.contains(s)) {
      const std::uint64_t last = at(s, 0).sent.last();
      cut_after_[s] = last - std::min<std::uint64_t>(last, random_.below(4));
    }
  }
  return true;
}

}  // namespace mayfly::sim
