// Which lease is given to whom next: what was given back, rounds, streams and backups, snapshots,
// and the effects of stragglers (kBsp slice by slice, or without them) and of divergence (all
// workers come to rest, and the job continues in kBsp from where all was well).

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "collectives/parameter_server/core/lease_table.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint64_t kRoundsPerProbe = 2;

}  // namespace

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

/// A step waits for this slice: it is given to a worker that can compute it now. If no worker has
/// the parameters of its step any more, they are fetched anew, and a shard gives the right ones
/// only when it has all of the steps before.
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

/// A worker for something that others wait for: one that has nothing to do. If there is none, all
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

/// A step is begun when all workers that take part are there, and is shared out evenly.
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

/// What was given back first, but rather not to the worker from which it came too late. Held, a
/// step that was begun is completed.
std::optional<std::uint64_t> LeaseTable::take_slice(MemberId id) {
  const bool goes_on = !held_ && !diverged_ && (!streams_ || wants_stream());
  const bool is_new = next_ < phase().last && (goes_on || !plan_.is_border(next_));
  const bool is_alone = std::none_of(workers_.begin(), workers_.end(), [id](const auto& entry) {
    return entry.first != id && entry.second.is_connected;
  });
  auto place = std::find_if(returned_.begin(), returned_.end(), [&](std::uint64_t slice) {
    const auto late = late_from_.find(slice);
    return is_alone || late == late_from_.end() || late->second != id;
  });
  if (place == returned_.end() && is_new) {
    return next_++;
  }
  place = place == returned_.end() ? returned_.begin() : place;
  if (place == returned_.end()) {
    return std::nullopt;
  }
  const std::uint64_t slice = *place;
  returned_.erase(place);
  late_from_.erase(slice);
  return slice;
}

void LeaseTable::serve_stream() {
  for (const MemberId id : waiting()) {
    const std::optional<std::uint64_t> slice = take_slice(id);
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
    const std::optional<std::uint64_t> slice = take_slice(id);
    if (!slice) {
      return;
    }
    grant(id, {.first = *slice, .count = 1, .version = version});
  }
}

/// Between two steps, and when every shard has what was leased, the way of doing them may change.
void LeaseTable::serve_bsp() {
  if (streams_ != wants_stream() && !must_restore()) {
    if (next_ < phase().last && is_at_rest()) {
      change_stream(wants_stream());
    }
  }
  if (streams_) {
    serve_stream();
  } else if (!wants_stream() || must_restore()) {
    serve_round();
  }
}

bool LeaseTable::wants_stream() const {
  return options_.stragglers == StragglerPolicy::kGreedy && !stragglers_.empty();
}

void LeaseTable::change_stream(bool streams) {
  if (std::exchange(streams_, streams) == streams) {
    return;
  }
  if (streams) {
    streamed_.push_back({next_, UINT64_MAX});
  } else {
    streamed_.back().last = next_;
  }
}

bool LeaseTable::is_streamed(std::uint64_t slice) const {
  return std::any_of(streamed_.begin(), streamed_.end(), [slice](const Streamed& part) {
    return slice >= part.first && slice < part.last;
  });
}

std::uint64_t LeaseTable::version_at(std::uint64_t slice) const {
  std::uint64_t version = plan_.version_at(slice);
  for (const Streamed& part : streamed_) {
    const std::uint64_t last = std::min(slice, part.last);
    const std::uint64_t count = last > part.first ? last - part.first : 0;
    version += count - count / plan_.phase_of(part.first).round;
  }
  return version;
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

/// The workers that get no slices of kBsp.
std::set<MemberId> LeaseTable::left_out() const {
  if (options_.stragglers != StragglerPolicy::kElastic || stragglers_.empty()) {
    return {};
  }
  std::set<MemberId> all;
  for (const auto& [id, worker] : workers_) {
    if (is_awaited(worker)) {
      all.insert(id);
    }
  }
  return worth_leaving_out(stragglers_, all, phase().round);
}

/// As many slices as the others have, whose way to and fro counts as little.
void LeaseTable::probe(const std::set<MemberId>& left_out, std::uint64_t first,
                       std::uint64_t count) {
  if (rounds_ % kRoundsPerProbe != 0) {
    return;
  }
  for (const MemberId id : left_out) {
    if (workers_.at(id).wants) {
      grant(
          id,
          {.kind = LeaseKind::kProbe, .first = first, .count = static_cast<std::uint32_t>(count)});
    }
  }
}

/// Every shard has exactly the slices before `next_`, whole steps.
bool LeaseTable::is_at_rest() const {
  return plan_.is_border(next_) && applied_.prefix() == next_ && returned_.empty() && all_idle();
}

/// At the end of the present phase.
bool LeaseTable::is_recorded() const {
  const bool is_last = phase_ + 1 == plan_.phases().size();
  return is_last || (phase().is_recorded && !doubts_);
}

/// A phase ends here. Shards keep what they had at the beginnings of the last two phases, so it
/// must be one of these that is good: in doubt for longer than a phase, the one before.
void LeaseTable::note_cut(std::uint64_t slice) {
  good_ = doubts_ ? std::max(good_, cut_) : slice;
  cut_ = slice;
}

void LeaseTable::fall_back() {
  ENSURE(!plan_.rewound(), "kBsp is where jobs fall back to");
  diverged_ = false;
  if (next_ <= good_) {
    return;  // a worker has pushed what it had not leased
  }
  plan_.fall_back({next_, good_});
  phase_ = plan_.index_of(next_);
  cut_ = next_;
  good_ = next_;
  updates_ = 0;
  recorder_.reset();
  doubts_ = false;
}

/// No shard is known to have restored its parameters: they do so when the first round begins.
bool LeaseTable::must_restore() const {
  return plan_.rewound() && applied_.prefix() == plan_.rewound()->at;
}

}  // namespace mayfly::parameter_server
