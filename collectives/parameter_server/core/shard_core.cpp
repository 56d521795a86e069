#include "collectives/parameter_server/core/shard_core.hpp"

namespace mayfly::parameter_server {
namespace {

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

ShardCore::ShardCore(const SyncPlan& plan, bool is_first, const LeaseDesk::Options& options)
    : order_(plan) {
  if (is_first) {
    desk_.emplace(plan, options);
  }
}

Result<ShardOutcome> ShardCore::take(const ShardEvent& event) {
  ShardOutcome outcome;
  switch (event.kind) {
    case ShardEventKind::kPush: return pushed(event);
    case ShardEventKind::kPull:
      outcome.answers =
          order_.pulled(event.push.worker, event.push.clock, event.push.wanted.value_or(0));
      break;
    case ShardEventKind::kRest: rest(event, outcome); break;
    case ShardEventKind::kConnected:
      if (desk_) {
        outcome.grants = desk_->connected(event.push.worker, event.serial);
      }
      break;
    case ShardEventKind::kWorkers: meet(event.workers, outcome); break;
    case ShardEventKind::kStragglers:
      if (desk_) {
        outcome.grants = desk_->set_stragglers(event.stragglers);
      }
      break;
    case ShardEventKind::kHold:
      if (desk_) {
        desk_->hold();
      }
      break;
  }
  return outcome;
}

Result<ShardOutcome> ShardCore::pushed(const ShardEvent& event) {
  Result<PushOutcome> pushed = order_.pushed(event.push);
  if (!pushed.ok()) {
    return std::move(pushed).error();
  }
  ShardOutcome outcome;
  outcome.fate = pushed.value().fate;
  outcome.update = std::move(pushed.value().update);
  outcome.answers = std::move(pushed.value().answers);
  repeats_ += outcome.fate == PushFate::kRepeat ? 1 : 0;
  if (!desk_) {
    return outcome;
  }
  const MemberId worker = event.push.worker;
  append(outcome.grants, desk_->confirmed(worker, event.serial));
  if (outcome.fate == PushFate::kStaged) {
    desk_->staged(event.push.slice);
  } else if (outcome.fate == PushFate::kLate) {
    append(outcome.grants, desk_->dropped(event.push.slice));
  }
  if (outcome.update) {
    append(outcome.grants, desk_->applied(outcome.update->slices));
  }
  if (event.wants_lease) {
    append(outcome.grants, desk_->wants(worker));
  }
  return outcome;
}

void ShardCore::rest(const ShardEvent& event, ShardOutcome& outcome) {
  outcome.answers = order_.rested(event.push.worker);
  if (desk_) {
    outcome.grants = desk_->rested(event.push.worker, event.serial);
  }
}

void ShardCore::meet(const std::set<MemberId>& workers, ShardOutcome& outcome) {
  for (const MemberId worker : workers_) {
    if (!workers.contains(worker)) {
      outcome.departed.push_back(worker);
      append(outcome.answers, order_.gone(worker));
    }
  }
  workers_ = workers;
  if (desk_) {
    append(outcome.grants, desk_->set_workers(workers));
    append(outcome.grants, desk_->go_on());
  }
}

}  // namespace mayfly::parameter_server
