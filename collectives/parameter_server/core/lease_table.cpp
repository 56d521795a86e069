#include "collectives/parameter_server/core/lease_table.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::parameter_server {
LeaseTable::LeaseTable(SyncPlan& plan, Options options)
    : plan_(plan),
      options_(options),
      next_(plan.first_slice()),
      applied_(plan.first_slice()),
      cut_(plan.first_slice()),
      good_(plan.first_slice()) {}

Grants LeaseTable::set_workers(const std::set<MemberId>& workers) {
  for (auto place = workers_.begin(); place != workers_.end();) {
    if (workers.contains(place->first)) {
      ++place;
      continue;
    }
    for (const Lease& lease : place->second.leases) {
      take_back(lease);
    }
    if (recorder_ == place->first) {
      recorder_.reset();
    }
    stragglers_.erase(place->first);
    place = workers_.erase(place);
  }
  for (const MemberId worker : workers) {
    workers_.try_emplace(worker);
  }
  return serve();
}

/// What a lost worker has not confirmed may be missing on a shard, whatever we have.
void LeaseTable::take_back(const Lease& lease) {
  if (lease.kind != LeaseKind::kCompute) {
    return;
  }
  for (std::uint64_t slice = lease.first; slice < lease.first + lease.count; ++slice) {
    if (!is_settled(slice)) {
      returned_.insert(slice);
      ++reissued_;
    }
  }
}

/// Its way to us may be cut, which takes time to find out. At the beginning all come at once, and
/// one alone would be given all of the first step.
bool LeaseTable::is_awaited(const Worker& worker) const {
  return worker.is_connected || next_ == plan_.first_slice();
}

/// It has reached every shard.
bool LeaseTable::is_settled(std::uint64_t slice) const {
  if (options_.one_shard) {
    return applied_.contains(slice) || staged_.contains(slice);
  }
  return plan_.phase_of(slice).policy.kind == SyncKind::kBsp && !is_streamed(slice) &&
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
  const auto place = workers_.find(id);
  if (place == workers_.end()) {
    return {};
  }
  Worker& worker = place->second;
  worker.is_connected = true;
  for (const Lease& lease : worker.leases) {
    if (lease.serial > received) {  // lost with a connection
      grants_.push_back({id, lease});
    }
  }
  return worker.leases.empty() ? wants(id) : serve();
}

Grants LeaseTable::wants(MemberId id) {
  const auto place = workers_.find(id);
  if (place != workers_.end() && !std::exchange(place->second.wants, true)) {
    place->second.order = ++wants_so_far_;
  }
  return serve();
}

Grants LeaseTable::rested(MemberId id, std::uint64_t through) {
  if (const auto place = workers_.find(id); place != workers_.end()) {
    place->second.rests = true;
  }
  Grants grants = confirmed(id, through);
  const Grants more = wants(id);
  grants.insert(grants.end(), more.begin(), more.end());
  return grants;
}

Grants LeaseTable::confirmed(MemberId id, std::uint64_t through) {
  const auto place = workers_.find(id);
  if (place == workers_.end()) {
    return {};
  }
  std::vector<Lease>& leases = place->second.leases;
  bool recorded = false;
  std::erase_if(leases, [&](const Lease& lease) {
    const bool over = lease.serial <= through;
    recorded = recorded || (over && lease.kind == LeaseKind::kSnapshot);
    if (over && lease.version) {  // every shard has answered with the next version
      complete_ = std::max(complete_, *lease.version + 1);
    }
    if (over && options_.one_shard && !is_over(lease)) {  // its round went on without it
      take_back(lease);
    }
    return over;
  });
  if (recorded) {
    next_phase();
  }
  return serve();
}

void LeaseTable::next_phase() {
  change_stream(false);
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
      returned_.erase(slice);
    }
  }
  ++updates_;
  return serve();
}

void LeaseTable::staged(std::uint64_t slice) {
  staged_.insert(slice);
  if (options_.one_shard) {
    returned_.erase(slice);
  }
}

Grants LeaseTable::dropped(std::uint64_t slice) {
  ++late_;
  returned_.insert(slice);
  return serve();
}

bool LeaseTable::is_quiet() const {
  return held_ && !diverged_ && !must_restore() && is_at_rest();
}

bool LeaseTable::all_idle() const {
  return std::all_of(workers_.begin(), workers_.end(), [this](const auto& entry) {
    const std::vector<Lease>& leases = entry.second.leases;
    return std::all_of(leases.begin(), leases.end(),
                       [this](const Lease& lease) { return is_over(lease); });
  });
}

void LeaseTable::grant(MemberId id, Lease lease) {
  Worker& worker = workers_.at(id);
  lease.serial = ++worker.serial;
  if (std::exchange(worker.rests, false)) {
    worker.clock = std::max(worker.clock, slowest_clock().value_or(0));
  }
  lease.clock = worker.clock;
  lease.rewind = plan_.rewound();
  worker.clock += lease.count;
  worker.wants = false;
  worker.round = lease.version;
  worker.leases.push_back(lease);
  grants_.push_back({id, lease});
}

/// Of those that have work.
std::optional<std::uint64_t> LeaseTable::slowest_clock() const {
  std::optional<std::uint64_t> least;
  for (const auto& [id, worker] : workers_) {
    for (const Lease& lease : worker.leases) {
      least = std::min(least.value_or(lease.clock), lease.clock);
    }
  }
  return least;
}

/// Who has asked, the first first.
std::vector<MemberId> LeaseTable::waiting() const {
  std::vector<MemberId> ids;
  for (const auto& [id, worker] : workers_) {
    if (worker.wants) {
      ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end(),
            [this](MemberId a, MemberId b) { return workers_.at(a).order < workers_.at(b).order; });
  return ids;
}

Grants LeaseTable::serve() {
  if (is_over()) {
    for (const MemberId id : waiting()) {
      grant(id, {.kind = LeaseKind::kOver});
    }
  } else {
    serve_returned();
    serve_phase();
  }
  return std::exchange(grants_, {});
}

/// A worker of that round has its parameters as long as any shard lacks a slice of it.
std::optional<MemberId> LeaseTable::holder_of(std::uint64_t version) const {
  for (const bool idle : {true, false}) {
    for (const auto& [id, worker] : workers_) {
      const bool took_part =
          std::any_of(worker.leases.begin(), worker.leases.end(),
                      [version](const Lease& lease) { return lease.version == version; });
      if (took_part && worker.wants == idle) {
        return id;
      }
    }
  }
  return std::nullopt;
}

void LeaseTable::serve_returned() {
  for (const std::uint64_t slice : std::vector(returned_.begin(), returned_.end())) {
    if (plan_.phase_of(slice).policy.kind == SyncKind::kBsp && !is_streamed(slice)) {
      serve_returned(slice);
    }
  }
}

/// Some shard may lack a slice of a round before this one's.
bool LeaseTable::misses_earlier_round(std::uint64_t slice) const {
  const std::uint64_t round = plan_.round_of(slice);
  if (!returned_.empty() && *returned_.begin() < round) {
    return true;
  }
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const std::vector<Lease>& leases = entry.second.leases;
    return std::any_of(leases.begin(), leases.end(), [&](const Lease& lease) {
      return lease.kind == LeaseKind::kCompute && lease.first < round && !is_over(lease);
    });
  });
}

/// A step waits for this slice: it is given to whoever can compute it, now. If nobody has the
/// parameters of its step any more, they are fetched anew, and a shard gives the right ones only
/// when it has all of the steps before.
void LeaseTable::serve_returned(std::uint64_t slice) {
  Lease lease{.first = slice, .count = 1, .version = version_at(plan_.round_of(slice))};
  std::optional<MemberId> worker = holder_of(*lease.version);
  if (!worker && (options_.one_shard || !misses_earlier_round(slice))) {
    worker = free_hand();
    if (worker && !options_.one_shard) {  // a shard may have gone on, and nobody has what it had
      lease.version.reset();
      ++mixed_;
    }
  }
  if (worker) {
    returned_.erase(slice);
    grant(*worker, lease);
  }
}

/// Who can do something that others wait for: one that has nothing to do. If there is none, all
/// may be waiting for just this, with leases of the next step.
std::optional<MemberId> LeaseTable::free_hand() const {
  std::vector<MemberId> idle = waiting();
  std::stable_partition(idle.begin(), idle.end(),
                        [slow = left_out()](MemberId id) { return !slow.contains(id); });
  if (!idle.empty()) {
    return idle.front();
  }
  if (options_.one_shard) {
    return std::nullopt;
  }
  const auto place = std::find_if(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.is_connected && !entry.second.leases.empty();
  });
  return place == workers_.end() ? std::nullopt : std::optional(place->first);
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
    for (const auto& [id, worker] : workers_) {
      if (worker.wants) {
        recorder_ = id;
        grant(id, {.kind = LeaseKind::kSnapshot, .first = phase().last});
        return;
      }
    }
  }
}

/// A step is begun when everybody is there who takes part, and shared out evenly.
void LeaseTable::serve_round() {
  const bool begins_round = plan_.round_of(next_) == next_;
  const bool is_held = held_ && plan_.is_border(next_) && !must_restore();
  const std::set<MemberId> out = left_out();
  std::vector<MemberId> ids;
  bool everybody = true;
  for (const auto& [id, worker] : workers_) {
    if (is_awaited(worker) && !out.contains(id)) {
      ids.push_back(id);
      everybody = everybody && worker.wants;
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

/// What was given back first. Held, a step that was begun is completed.
std::optional<std::uint64_t> LeaseTable::take_slice() {
  if (!returned_.empty()) {
    const std::uint64_t slice = *returned_.begin();
    returned_.erase(returned_.begin());
    return slice;
  }
  const bool goes_on = !held_ && !diverged_ && (!streams_ || wants_stream());
  const bool may_begin = goes_on || !plan_.is_border(next_);
  return next_ < phase().last && may_begin ? std::optional(next_++) : std::nullopt;
}

void LeaseTable::serve_stream() {
  for (const MemberId id : waiting()) {
    const std::optional<std::uint64_t> slice = take_slice();
    if (!slice) {
      return;
    }
    grant(id, {.first = *slice, .count = 1, .at_once = streams_});
  }
}

/// One slice per worker and round; if that is not enough for the round, more.
void LeaseTable::serve_backup() {
  const std::uint64_t version = version_at(phase().first) + updates_;
  const std::vector<MemberId> idle = waiting();
  const bool all_wait = std::all_of(workers_.begin(), workers_.end(), [this](const auto& entry) {
    return entry.second.wants || !is_awaited(entry.second);
  });
  for (const MemberId id : idle) {
    if (workers_.at(id).round == version && !all_wait) {
      continue;
    }
    const std::optional<std::uint64_t> slice = take_slice();
    if (!slice) {
      return;
    }
    grant(id, {.first = *slice, .count = 1, .version = version});
  }
}

}  // namespace mayfly::parameter_server
