#include "collectives/parameter_server/core/update_order.hpp"

#include <algorithm>
#include <string>

namespace mayfly::parameter_server {
namespace {

Error refusal(const Push& push, const char* why) {
  return {Errc::kInvalidInput, "slice " + std::to_string(push.slice) + " " + why, push.worker};
}

}  // namespace

bool are_whole(const std::vector<StateVersion>& shards, const SyncPlan& plan) {
  const StateVersion& first = shards.front();
  return first.slices == first.prefix && plan.is_border(first.slices) &&
         std::all_of(shards.begin(), shards.end(),
                     [&](const StateVersion& shard) { return shard == first; });
}

UpdateOrder::UpdateOrder(const SyncPlan& plan) : plan_(plan), applied_(plan.first_slice()) {}

Result<PushFate> UpdateOrder::fate_of(const Push& push) const {
  if (push.slice < plan_.first_slice() || push.slice >= plan_.last_slice()) {
    return refusal(push, "is none of the job's");
  }
  if (applied_.contains(push.slice) || staged_.contains(push.slice)) {
    return PushFate::kRepeat;
  }
  const SyncPhase& phase = plan_.phase_of(push.slice);
  if (applied_.prefix() < phase.first) {
    return refusal(push, "belongs to a phase that has not begun");
  }
  if (push.base_version > version_) {
    return refusal(push, "was computed with parameters that do not exist");
  }
  if (push.at_once && phase.policy.kind == SyncKind::kBsp && staged_.empty()) {
    return PushFate::kApplied;
  }
  switch (phase.policy.kind) {
    case SyncKind::kAsp:
    case SyncKind::kSsp: return PushFate::kApplied;
    case SyncKind::kBackup:
      return push.base_version == version_ ? PushFate::kStaged : PushFate::kLate;
    case SyncKind::kBsp: break;
  }
  if (plan_.round_of(push.slice) != plan_.round_of(applied_.prefix())) {
    return refusal(push, "belongs to a step that has not begun");
  }
  if (push.base_version != version_) {
    return refusal(push, "was not computed with the parameters of its step");
  }
  return PushFate::kStaged;
}

bool UpdateOrder::round_is_complete(const SyncPhase& phase) const {
  if (phase.policy.kind == SyncKind::kBsp) {
    return staged_.size() == phase.round;
  }
  const std::uint64_t left = phase.last - applied_.count();
  return staged_.size() == std::min<std::uint64_t>(phase.policy.needed, left);
}

Update UpdateOrder::update_of(std::vector<std::uint64_t> slices) const {
  Update update;
  update.slices = std::move(slices);
  update.committed_before = applied_.count();
  update.step = plan_.steps_before(update.committed_before) + 1;
  update.steps_after = plan_.steps_before(update.committed_before + update.slices.size());
  update.settings = plan_.phase_of(update.committed_before).settings;
  update.rate = plan_.rate_after(update.committed_before);
  update.begins_phase = plan_.is_cut(update.committed_before);
  return update;
}

Update UpdateOrder::apply_one(const Push& push) {
  Update update = update_of({push.slice});
  update.staleness = version_ - push.base_version;
  ++staleness_[update.staleness];
  applied_.add(push.slice);
  update.version = ++version_;
  return update;
}

Update UpdateOrder::apply_round() {
  std::vector<std::uint64_t> slices;
  for (const auto& [slice, base] : staged_) {  // by number, not by arrival
    slices.push_back(slice);
  }
  Update update = update_of(std::move(slices));
  for (const std::uint64_t slice : update.slices) {
    applied_.add(slice);
  }
  staged_.clear();
  update.version = ++version_;
  return update;
}

Result<PushOutcome> UpdateOrder::pushed(const Push& push) {
  const Result<PushFate> fate = fate_of(push);
  if (!fate.ok()) {
    return fate.error();
  }
  PushOutcome outcome;
  outcome.fate = fate.value();
  Worker& worker = note_clock(push.worker, push.clock);
  if (push.wanted) {
    worker.wanted = push.wanted;
  }
  if (outcome.fate == PushFate::kApplied) {
    outcome.update = apply_one(push);
  } else if (outcome.fate == PushFate::kStaged) {
    staged_.emplace(push.slice, push.base_version);
    if (round_is_complete(plan_.phase_of(push.slice))) {
      outcome.update = apply_round();
    }
  }
  outcome.answers = take_answers();
  return outcome;
}

std::vector<MemberId> UpdateOrder::pulled(MemberId id, std::uint64_t clock, std::uint64_t wanted) {
  note_clock(id, clock).wanted = wanted;
  return take_answers();
}

std::vector<MemberId> UpdateOrder::rested(MemberId id) {
  if (const auto place = workers_.find(id); place != workers_.end()) {
    place->second.works = false;
    place->second.wanted.reset();  // it was asked over a broken connection
  }
  return take_answers();
}

std::vector<MemberId> UpdateOrder::gone(MemberId id) {
  workers_.erase(id);
  return take_answers();
}

/// Clocks are part of the messages and so the same on every shard. If each shard counted by itself,
/// two shards could make two workers wait for each other.
UpdateOrder::Worker& UpdateOrder::note_clock(MemberId id, std::uint64_t clock) {
  Worker& worker = workers_[id];
  worker.clock = std::max(worker.clock, clock);
  worker.works = true;
  return worker;
}

std::optional<std::uint64_t> UpdateOrder::slowest() const {
  std::optional<std::uint64_t> least;
  for (const auto& [id, worker] : workers_) {
    if (worker.works) {
      least = std::min(least.value_or(worker.clock), worker.clock);
    }
  }
  return least;
}

/// The bound applies to the phase of the newest slices; between two phases a worker has no work.
bool UpdateOrder::may_proceed(const Worker& worker) const {
  if (applied_.prefix() >= plan_.last_slice()) {
    return true;
  }
  const SyncPolicy& policy = plan_.phase_of(applied_.prefix()).policy;
  return policy.kind != SyncKind::kSsp ||
         worker.clock <= slowest().value_or(worker.clock) + policy.staleness;
}

std::vector<MemberId> UpdateOrder::take_answers() {
  std::vector<MemberId> answers;
  for (auto& [id, worker] : workers_) {
    if (worker.wanted && version_ >= *worker.wanted && may_proceed(worker)) {
      worker.wanted.reset();
      answers.push_back(id);
    }
  }
  return answers;
}

}  // namespace mayfly::parameter_server
