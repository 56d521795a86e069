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
    const std::vector<Lease> leases = std::move(place->second.leases);
    if (recorder_ == place->first) {
      recorder_.reset();
    }
    stragglers_.erase(place->first);
    place = workers_.erase(place);
    reissued_ += take_back(leases);
  }
  for (const MemberId worker : workers) {
    workers_.try_emplace(worker);
  }
  return serve();
}

/// Of a worker that has them no more. What a lost one has not confirmed may be missing on a shard,
/// whatever we have. Returns how many slices that are.
std::uint64_t LeaseTable::take_back(const std::vector<Lease>& leases) {
  std::uint64_t count = 0;
  for (const Lease& lease : leases) {
    const std::uint64_t slices = lease.kind == LeaseKind::kCompute ? lease.count : 0;
    for (std::uint64_t slice = lease.first; slice < lease.first + slices; ++slice) {
      if (!is_settled(slice)) {
        returned_.insert(slice);
        ++count;
      }
    }
  }
  return count;
}

bool LeaseTable::is_leased(std::uint64_t slice) const {
  return std::any_of(workers_.begin(), workers_.end(), [slice](const auto& entry) {
    const std::vector<Lease>& leases = entry.second.leases;
    return std::any_of(leases.begin(), leases.end(), [slice](const Lease& lease) {
      return lease.kind == LeaseKind::kCompute && slice >= lease.first &&
             slice < lease.first + lease.count;
    });
  });
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
  std::vector<Lease> over;
  bool recorded = false;
  std::erase_if(leases, [&](const Lease& lease) {
    if (lease.serial > through) {
      return false;
    }
    recorded = recorded || lease.kind == LeaseKind::kSnapshot;
    if (lease.version) {  // every shard has answered with the next version
      complete_ = std::max(complete_, *lease.version + 1);
    }
    over.push_back(lease);
    return true;
  });
  if (options_.one_shard) {
    take_back(over);  // those that the worker did not begin, as their round went on without them
  }
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
      late_from_.erase(slice);
    }
  }
  ++updates_;
  return serve();
}

void LeaseTable::staged(std::uint64_t slice) {
  staged_.insert(slice);
  if (options_.one_shard) {
    returned_.erase(slice);
    late_from_.erase(slice);
  }
}

/// It may be another one's already, if the worker pushes it again over a new connection.
Grants LeaseTable::dropped(MemberId id, std::uint64_t slice) {
  ++late_;
  if (const auto place = workers_.find(id); place != workers_.end()) {
    std::erase_if(place->second.leases, [slice](const Lease& lease) {
      return lease.kind == LeaseKind::kCompute && lease.first == slice && lease.count == 1;
    });
  }
  if (!is_leased(slice)) {
    returned_.insert(slice);
    late_from_.insert_or_assign(slice, id);
  }
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

/// The least clock among the workers that have a lease.
std::optional<std::uint64_t> LeaseTable::slowest_clock() const {
  std::optional<std::uint64_t> least;
  for (const auto& [id, worker] : workers_) {
    for (const Lease& lease : worker.leases) {
      least = std::min(least.value_or(lease.clock), lease.clock);
    }
  }
  return least;
}

/// The workers that have asked, in the order in which they did.
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

}  // namespace mayfly::parameter_server
