#include "collectives/parameter_server/core/lease_table.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint64_t kRoundsPerProbe = 2;

}  // namespace

LeaseTable::LeaseTable(SyncPlan& plan, Options options)
    : plan_(plan),
      options_(options),
      next_(plan.first_slice()),
      applied_(plan.first_slice()),
      cut_(plan.first_slice()),
      good_(plan.first_slice()) {}

Grants LeaseTable::set_workers(const std::set<MemberId>& workers) {
  for (const auto& [id, worker] : workers_.set_workers(workers)) {
    if (recorder_ == id) {
      recorder_.reset();
    }
    stragglers_.erase(id);
    reissued_ += take_back(worker.leases);
  }
  return serve();
}

/// Returns slices of leases that their worker does not have any more. If a lost worker has not
/// confirmed a slice, some shard may lack it, even if this one has it. Returns the number of slices
/// that have to be computed again.
std::uint64_t LeaseTable::take_back(const std::vector<Lease>& leases) {
  std::uint64_t count = 0;
  for (const Lease& lease : leases) {
    const std::uint64_t slices = lease.kind == LeaseKind::kCompute ? lease.count : 0;
    for (std::uint64_t slice = lease.first; slice < lease.first + slices; ++slice) {
      if (!is_settled(slice)) {
        returned_.add(slice);
        ++count;
      }
    }
  }
  return count;
}

/// True if a step waits for this worker. A worker that is not connected is not awaited, because its
/// link may be cut, which takes long to detect. At the beginning of the job all workers are
/// awaited, because otherwise the first one that connects would get the whole first step.
bool LeaseTable::is_awaited(const LeaseHolders::Worker& worker) const {
  return worker.is_connected || next_ == plan_.first_slice();
}

/// The slice has reached every shard.
bool LeaseTable::is_settled(std::uint64_t slice) const {
  if (options_.one_shard) {
    return applied_.contains(slice) || staged_.contains(slice);
  }
  return plan_.phase_of(slice).policy.kind == SyncKind::kBsp && !streamed_.contains(slice) &&
         version_at(plan_.round_of(slice)) < complete_;
}

bool LeaseTable::is_over(const Lease& lease) const {
  if (lease.kind != LeaseKind::kCompute) {
    return lease.kind == LeaseKind::kOver || lease.kind == LeaseKind::kProbe;
  }
  for (std::uint64_t slice = lease.first; slice < lease.first + lease.count; ++slice) {
    if (!is_settled(slice)) {
      return false;
    }
  }
  return true;
}

void LeaseTable::hold() {
  held_ = true;
}

Grants LeaseTable::go_on() {
  held_ = false;
  return serve();
}

Grants LeaseTable::connected(MemberId id, std::uint64_t received) {
  if (!workers_.contains(id)) {
    return {};
  }
  for (const Lease& lease : workers_.connected(id, received)) {
    grants_.push_back({id, lease});
  }
  return workers_.all().at(id).leases.empty() ? wants(id) : serve();
}

Grants LeaseTable::wants(MemberId id) {
  workers_.asks(id);
  return serve();
}

Grants LeaseTable::rested(MemberId id, std::uint64_t through) {
  workers_.rests(id);
  Grants grants = confirmed(id, through);
  const Grants more = wants(id);
  grants.insert(grants.end(), more.begin(), more.end());
  return grants;
}

Grants LeaseTable::confirmed(MemberId id, std::uint64_t through) {
  if (!workers_.contains(id)) {
    return {};
  }
  bool recorded = false;
  const std::vector<Lease> over = workers_.confirmed(id, through);
  for (const Lease& lease : over) {
    recorded = recorded || lease.kind == LeaseKind::kSnapshot;
    if (lease.version) {  // every shard has answered with the next version
      complete_ = std::max(complete_, *lease.version + 1);
    }
  }
  if (options_.one_shard) {
    take_back(over);  // slices that were not begun, as their round did not need them
  }
  if (recorded) {
    next_phase();
  }
  return serve();
}

void LeaseTable::next_phase() {
  streamed_.change(false, next_);
  recorder_.reset();
  note_cut(phase().last);
  ++phase_;
  updates_ = 0;
}

Grants LeaseTable::applied(const std::vector<std::uint64_t>& slices) {
  for (const std::uint64_t slice : slices) {
    applied_.add(slice);
    staged_.erase(slice);
    if (options_.one_shard) {
      returned_.remove(slice);
    }
  }
  ++updates_;
  return serve();
}

void LeaseTable::staged(std::uint64_t slice) {
  staged_.insert(slice);
  if (options_.one_shard) {
    returned_.remove(slice);
  }
}

/// The slice may already be leased to another worker, if this worker has pushed it again over a new
/// connection.
Grants LeaseTable::dropped(MemberId id, std::uint64_t slice) {
  ++late_;
  workers_.drop(id, slice);
  if (!workers_.is_leased(slice)) {
    returned_.add_late(slice, id);
  }
  return serve();
}

bool LeaseTable::is_quiet() const {
  return held_ && !diverged_ && !must_restore() && is_at_rest();
}

bool LeaseTable::all_idle() const {
  return std::ranges::all_of(workers_.all(), [this](const auto& entry) {
    const std::vector<Lease>& leases = entry.second.leases;
    return std::ranges::all_of(leases, [this](const Lease& lease) { return is_over(lease); });
  });
}

void LeaseTable::grant(MemberId id, Lease lease) {
  lease.rewind = plan_.rewound();
  grants_.push_back({id, workers_.grant(id, lease)});
}

Grants LeaseTable::serve() {
  if (is_over()) {
    for (const MemberId id : workers_.asking()) {
      grant(id, {.kind = LeaseKind::kOver});
    }
  } else {
    serve_returned();
    serve_phase();
  }
  check_invariants();
  return std::exchange(grants_, {});
}

/// Invariants between any two events, whatever the workers say: one may push what it has not
/// leased.
void LeaseTable::check_invariants() const {
  workers_.check_invariants();
  ENSURE(phase_ <= plan_.phases().size(), "no phase follows the last one");
  ENSURE(good_ <= cut_ && cut_ <= next_, "the job falls back to where a phase has begun");
  ENSURE(!streams() || (!is_over() && phase().policy.kind == SyncKind::kBsp),
         "only steps of kBsp may be done slice by slice instead");
  for (const auto& [id, worker] : workers_.all()) {
    const auto snapshots = std::ranges::count(worker.leases, LeaseKind::kSnapshot, &Lease::kind);
    ENSURE(snapshots == (recorder_ == id ? 1 : 0), "the recorder alone leases the snapshot");
  }
  ENSURE(!recorder_ || workers_.contains(*recorder_), "the recorder is a worker of the view");
  ENSURE(std::ranges::all_of(stragglers_,
                             [this](const auto& s) { return workers_.contains(s.first); }),
         "stragglers are workers of the view");
}

void LeaseTable::serve_returned() {
  for (const std::uint64_t slice : returned_.all()) {
    if (plan_.phase_of(slice).policy.kind == SyncKind::kBsp && !streamed_.contains(slice)) {
      serve_returned(slice);
    }
  }
}

/// Some shard may lack a slice of an earlier round.
bool LeaseTable::misses_earlier_round(std::uint64_t slice) const {
  const std::uint64_t round = plan_.round_of(slice);
  if (returned_.has_before(round)) {
    return true;
  }
  return std::ranges::any_of(workers_.all(), [&](const auto& entry) {
    return std::ranges::any_of(entry.second.leases, [&](const Lease& lease) {
      return lease.kind == LeaseKind::kCompute && lease.first < round && !is_over(lease);
    });
  });
}

/// A step waits for this slice, so it is given to a worker that can compute it now. If no worker
/// has the parameters of its step any more, they are fetched anew; a shard returns the right ones
/// only when it has all slices of the steps before.
void LeaseTable::serve_returned(std::uint64_t slice) {
  Lease lease{.first = slice, .count = 1, .version = version_at(plan_.round_of(slice))};
  std::optional<MemberId> worker = workers_.holder_of(*lease.version);
  if (!worker && (options_.one_shard || !misses_earlier_round(slice))) {
    worker = worker_for_awaited_slice();
    if (worker && !options_.one_shard) {  // no worker has the old version of a shard that is ahead
      lease.version.reset();
      ++mixed_;
    }
  }
  if (worker) {
    returned_.remove(slice);
    grant(*worker, lease);
  }
}

/// A worker for a slice that other workers wait for: preferably one without work. If all have
/// leases, these may be leases of the next step, which waits for this slice; then any connected
/// worker is taken.
std::optional<MemberId> LeaseTable::worker_for_awaited_slice() const {
  std::vector<MemberId> idle = workers_.asking();
  std::stable_partition(idle.begin(), idle.end(),
                        [slow = left_out()](MemberId id) { return !slow.contains(id); });
  if (!idle.empty()) {
    return idle.front();
  }
  if (options_.one_shard) {
    return std::nullopt;
  }
  const auto place = std::ranges::find_if(workers_.all(), [](const auto& entry) {
    return entry.second.is_connected && !entry.second.leases.empty();
  });
  return place == workers_.all().end() ? std::nullopt : std::optional(place->first);
}

bool LeaseTable::is_drained() const {
  return next_ == phase().last && applied_.prefix() >= phase().last && returned_.empty() &&
         all_idle();
}

void LeaseTable::serve_phase() {
  if (diverged_ && is_at_rest()) {
    fall_back();
  } else if (is_drained()) {
    if (is_recorded()) {
      serve_snapshot();
      return;
    }
    next_phase();
  }
  switch (phase().policy.kind) {
    case SyncKind::kBsp: serve_bsp(); break;
    case SyncKind::kAsp:
    case SyncKind::kSsp: serve_stream(); break;
    case SyncKind::kBackup: serve_backup(); break;
  }
}

void LeaseTable::serve_snapshot() {
  if (!recorder_) {
    for (const auto& [id, worker] : workers_.all()) {
      if (worker.asks) {
        recorder_ = id;
        grant(id, {.kind = LeaseKind::kSnapshot, .first = phase().last});
        return;
      }
    }
  }
}

/// A step begins when all workers that are awaited ask for work, and is divided evenly.
void LeaseTable::serve_round() {
  const bool begins_round = plan_.round_of(next_) == next_;
  const bool is_held = held_ && plan_.is_border(next_) && !must_restore();
  const std::set<MemberId> out = left_out();
  std::vector<MemberId> ids;
  bool everybody = true;
  for (const auto& [id, worker] : workers_.all()) {
    if (is_awaited(worker) && !out.contains(id)) {
      ids.push_back(id);
      everybody = everybody && worker.asks;
    }
  }
  if (is_held || next_ == phase().last || !begins_round || applied_.prefix() != next_ ||
      !everybody || ids.empty()) {
    return;
  }
  const std::uint64_t slices = phase().round;
  const std::uint64_t count = ids.size();
  std::uint64_t rank = 0;
  const std::uint64_t first = next_;
  next_ += slices;
  ++rounds_;
  for (const MemberId id : ids) {
    const std::uint64_t begin = slices * rank / count;
    const std::uint64_t end = slices * (rank + 1) / count;
    ++rank;
    if (begin < end) {
      grant(id, {.first = first + begin,
                 .count = static_cast<std::uint32_t>(end - begin),
                 .version = version_at(first)});
    }
  }
  probe(out, first, std::max<std::uint64_t>(1, slices / count));
}

/// The next slice for this worker: a returned one, if possible one that this worker was not too
/// late for; otherwise a new one. While the table is held, only the step in progress is completed.
std::optional<std::uint64_t> LeaseTable::take_slice(MemberId id) {
  const bool goes_on = !held_ && !diverged_ && (!streams() || wants_stream());
  const bool is_new = next_ < phase().last && (goes_on || !plan_.is_border(next_));
  std::optional<std::uint64_t> slice =
      workers_.is_alone(id) ? returned_.first() : returned_.first_for(id);
  if (!slice && is_new) {
    return next_++;
  }
  slice = slice ? slice : returned_.first();
  if (slice) {
    returned_.remove(*slice);
  }
  return slice;
}

void LeaseTable::serve_stream() {
  for (const MemberId id : workers_.asking()) {
    const std::optional<std::uint64_t> slice = take_slice(id);
    if (!slice) {
      return;
    }
    grant(id, {.first = *slice, .count = 1, .at_once = streams()});
  }
}

/// One slice per worker and round; more if that is not enough for the round. A worker that is alone
/// and has asked before it pushed, as after a connection that broke, would be late with a slice
/// that the round does not need.
void LeaseTable::serve_backup() {
  const std::uint64_t version = version_at(phase().first) + updates_;
  const std::vector<MemberId> idle = workers_.asking();
  const bool all_ask = std::ranges::all_of(workers_.all(), [this](const auto& entry) {
    return entry.second.asks || !is_awaited(entry.second);
  });
  for (const MemberId id : idle) {
    const bool has_rest =
        workers_.is_alone(id) &&
        staged_.size() + workers_.under_way(id, version, staged_) >= phase().round;
    if (workers_.all().at(id).round == version && (!all_ask || has_rest)) {
      continue;
    }
    const std::optional<std::uint64_t> slice = take_slice(id);
    if (!slice) {
      return;
    }
    grant(id, {.first = *slice, .count = 1, .version = version});
  }
}

/// Between two steps, when every shard has all leased slices, it may change whether steps are done
/// slice by slice.
void LeaseTable::serve_bsp() {
  if (streams() != wants_stream() && !must_restore() && next_ < phase().last && is_at_rest()) {
    streamed_.change(wants_stream(), next_);
  }
  if (streams()) {
    serve_stream();
  } else if (!wants_stream() || must_restore()) {
    serve_round();
  }
}

bool LeaseTable::wants_stream() const {
  return options_.stragglers == StragglerPolicy::kGreedy && !stragglers_.empty();
}

std::uint64_t LeaseTable::version_at(std::uint64_t slice) const {
  return plan_.version_at(slice) + streamed_.more_updates(slice, plan_);
}

Grants LeaseTable::set_stragglers(const std::map<MemberId, double>& stragglers) {
  stragglers_ = stragglers;
  std::erase_if(stragglers_, [this](const auto& entry) { return !workers_.contains(entry.first); });
  return serve();
}

bool LeaseTable::shows_speeds() const {
  return !is_over() &&
         (phase().policy.kind == SyncKind::kBsp || phase().policy.kind == SyncKind::kAsp);
}

/// The workers that get no slices in kBsp.
std::set<MemberId> LeaseTable::left_out() const {
  if (options_.stragglers != StragglerPolicy::kElastic || stragglers_.empty()) {
    return {};
  }
  std::set<MemberId> all;
  for (const auto& [id, worker] : workers_.all()) {
    if (is_awaited(worker)) {
      all.insert(id);
    }
  }
  return worth_leaving_out(stragglers_, all, phase().round);
}

/// Probes have as many slices as the other workers' leases, so that the time of the messages counts
/// as little.
void LeaseTable::probe(const std::set<MemberId>& left_out, std::uint64_t first,
                       std::uint64_t count) {
  if (rounds_ % kRoundsPerProbe != 0) {
    return;
  }
  for (const MemberId id : left_out) {
    if (workers_.all().at(id).asks) {
      grant(
          id,
          {.kind = LeaseKind::kProbe, .first = first, .count = static_cast<std::uint32_t>(count)});
    }
  }
}

/// Every shard has exactly the slices before `next_`, which are whole steps.
bool LeaseTable::is_at_rest() const {
  return plan_.is_border(next_) && applied_.prefix() == next_ && returned_.empty() && all_idle();
}

/// Whether the state is recorded at the end of the present phase.
bool LeaseTable::is_recorded() const {
  const bool is_last = phase_ + 1 == plan_.phases().size();
  return is_last || (phase().is_recorded && !doubts_);
}

/// A phase ends here. Shards keep copies of their states at the beginnings of the last two phases,
/// so good_ must be one of these: after a doubt that has lasted longer than a phase, the earlier
/// one.
void LeaseTable::note_cut(std::uint64_t slice) {
  good_ = doubts_ ? std::max(good_, cut_) : slice;
  cut_ = slice;
}

void LeaseTable::fall_back() {
  ENSURE(!plan_.rewound(), "kBsp is where jobs fall back to");
  diverged_ = false;
  if (next_ <= good_) {
    return;  // a worker has pushed slices that were not leased
  }
  plan_.fall_back({next_, good_});
  phase_ = plan_.index_of(next_);
  cut_ = next_;
  good_ = next_;
  updates_ = 0;
  recorder_.reset();
  doubts_ = false;
}

/// No shard is known to have restored its parameters yet: they do so when the first round begins.
bool LeaseTable::must_restore() const {
  return plan_.rewound() && applied_.prefix() == plan_.rewound()->at;
}

}  // namespace mayfly::parameter_server
