#include "collectives/parameter_server/core/shard_core.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kCutsKept = 2;

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

ShardCore::ShardCore(const SyncPlan& plan, const Options& options)
    : options_(options), plan_(plan), order_(plan_), divergence_(options.divergence) {
  if (options_.is_first) {
    leases_.emplace(plan_, options_.leases);
  }
}

Result<ShardOutcome> ShardCore::take(const ShardEvent& event) {
  ShardOutcome outcome;
  if (event.rewind && !restored_) {
    TRY(check_rewind(*event.rewind));
    restore(*event.rewind, outcome);
  }
  switch (event.kind) {
    case ShardEventKind::kPush: {
      Result<ShardOutcome> done = pushed(event);
      if (!outcome.restore) {
        return done;
      }
      if (done.ok()) {
        done.value().restore = outcome.restore;
      }
      return done.ok() ? std::move(done) : Result<ShardOutcome>(std::move(outcome));
    }
    case ShardEventKind::kPull:
      outcome.answers =
          order_.pulled(event.push.worker, event.push.clock, event.push.wanted.value_or(0));
      break;
    case ShardEventKind::kRest: rest(event, outcome); break;
    case ShardEventKind::kConnected:
      if (leases_) {
        outcome.grants = leases_->connected(event.push.worker, event.serial);
      }
      break;
    case ShardEventKind::kWorkers: meet(event.workers, outcome); break;
    case ShardEventKind::kStragglers:
      if (leases_) {
        outcome.grants = leases_->set_stragglers(event.stragglers);
      }
      break;
    case ShardEventKind::kHold:
      if (leases_) {
        leases_->hold();
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
  if (outcome.fate == PushFate::kApplied || outcome.fate == PushFate::kStaged) {
    losses_[event.push.slice] = {event.loss, event.microbatches};
  }
  if (outcome.update) {
    outcome.update->workers =
        std::max<std::uint32_t>(1, static_cast<std::uint32_t>(workers_.size()));
    watch(*outcome.update);
  }
  if (!leases_) {
    return outcome;
  }
  const MemberId worker = event.push.worker;
  append(outcome.grants, leases_->confirmed(worker, event.serial));
  if (outcome.fate == PushFate::kStaged) {
    leases_->staged(event.push.slice);
  } else if (outcome.fate == PushFate::kLate) {
    append(outcome.grants, leases_->dropped(worker, event.push.slice));
  }
  if (outcome.update) {
    append(outcome.grants, leases_->applied(outcome.update->slices));
  }
  if (event.wants_lease) {
    append(outcome.grants, leases_->wants(worker));
  }
  return outcome;
}

/// To be called before the table of leases receives the update: updates in doubt must not be
/// recorded.
void ShardCore::watch(const Update& update) {
  Loss loss;
  for (const std::uint64_t slice : update.slices) {
    const Loss own = losses_.at(slice);
    loss.sum += own.sum;
    loss.microbatches += own.microbatches;
    losses_.erase(slice);
  }
  if (update.begins_phase) {
    cuts_.push_back(update.committed_before);
    if (cuts_.size() > kCutsKept) {
      cuts_.pop_front();
    }
  }
  if (!leases_ || !options_.divergence.falls_back || plan_.rewound()) {
    return;
  }
  const bool streams = is_stream(plan_.phase_of(update.committed_before).policy);
  divergence_.add(loss.sum, loss.microbatches, static_cast<std::uint32_t>(update.slices.size()),
                  streams);
  leases_->set_doubt(divergence_.doubts());
  if (divergence_.has_diverged()) {
    leases_->set_diverged();
  }
}

/// The worker has the rewind from the table of leases, which grants it only when every shard has
/// exactly the slices before it. The first shard has this table, so it knows the rewind before any
/// worker does.
Result<void> ShardCore::check_rewind(const Rewind& rewind) const {
  const SliceSet& applied = order_.applied();
  const bool is_known = plan_.rewound() ? *plan_.rewound() == rewind : !leases_;
  const bool is_kept = std::find(cuts_.begin(), cuts_.end(), rewind.to) != cuts_.end();
  const bool is_at_rewind =
      applied.prefix() == rewind.at && applied.count() == rewind.at && order_.staged() == 0;
  if (!options_.divergence.falls_back || !is_known || !is_kept || !is_at_rewind ||
      rewind.to >= rewind.at || !plan_.is_border(rewind.at)) {
    return Error{Errc::kInvalidInput, "a return to a state that does not exist"};
  }
  return {};
}

void ShardCore::restore(const Rewind& rewind, ShardOutcome& outcome) {
  if (!plan_.rewound()) {
    plan_.fall_back(rewind);
  }
  order_.restored();
  restored_ = true;
  outcome.restore = rewind;
}

void ShardCore::rest(const ShardEvent& event, ShardOutcome& outcome) {
  outcome.answers = order_.rested(event.push.worker);
  if (leases_) {
    outcome.grants = leases_->rested(event.push.worker, event.serial);
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
  if (leases_) {
    append(outcome.grants, leases_->set_workers(workers));
    append(outcome.grants, leases_->go_on());
  }
}

}  // namespace mayfly::parameter_server
