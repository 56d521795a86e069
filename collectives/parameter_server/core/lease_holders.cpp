#include "collectives/parameter_server/core/lease_holders.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.hpp"

namespace mayfly::parameter_server {

std::map<MemberId, LeaseHolders::Worker> LeaseHolders::set_workers(
    const std::set<MemberId>& workers) {
  std::map<MemberId, Worker> gone;
  for (auto place = workers_.begin(); place != workers_.end();) {
    const auto present = place++;
    if (!workers.contains(present->first)) {
      gone.insert(workers_.extract(present));
    }
  }
  for (const MemberId worker : workers) {
    workers_.try_emplace(worker);
  }
  return gone;
}

std::vector<Lease> LeaseHolders::connected(MemberId id, std::uint64_t received) {
  Worker& worker = workers_.at(id);
  worker.is_connected = true;
  std::vector<Lease> lost;
  std::ranges::copy_if(worker.leases, std::back_inserter(lost),
                       [received](const Lease& lease) { return lease.serial > received; });
  return lost;
}

std::vector<Lease> LeaseHolders::confirmed(MemberId id, std::uint64_t through) {
  std::vector<Lease> over;
  std::erase_if(workers_.at(id).leases, [&](const Lease& lease) {
    if (lease.serial > through) {
      return false;
    }
    over.push_back(lease);
    return true;
  });
  return over;
}

void LeaseHolders::asks(MemberId id) {
  const auto place = workers_.find(id);
  if (place != workers_.end() && !std::exchange(place->second.asks, true)) {
    place->second.order = ++requests_;
  }
}

void LeaseHolders::rests(MemberId id) {
  if (const auto place = workers_.find(id); place != workers_.end()) {
    place->second.rests = true;
  }
}

void LeaseHolders::drop(MemberId id, std::uint64_t slice) {
  if (const auto place = workers_.find(id); place != workers_.end()) {
    std::erase_if(place->second.leases,
                  [slice](const Lease& lease) { return covers(lease, slice) && lease.count == 1; });
  }
}

Lease LeaseHolders::grant(MemberId id, Lease lease) {
  Worker& worker = workers_.at(id);
  lease.serial = ++worker.serial;
  if (std::exchange(worker.rests, false)) {
    worker.clock = std::max(worker.clock, slowest_clock().value_or(0));
  }
  lease.clock = worker.clock;
  worker.clock += lease.count;
  worker.asks = false;
  worker.round = lease.version;
  worker.leases.push_back(lease);
  return lease;
}

/// The lowest clock among the leases that are held.
std::optional<std::uint64_t> LeaseHolders::slowest_clock() const {
  std::optional<std::uint64_t> least;
  for (const auto& [id, worker] : workers_) {
    for (const Lease& lease : worker.leases) {
      least = std::min(least.value_or(lease.clock), lease.clock);
    }
  }
  return least;
}

std::vector<MemberId> LeaseHolders::asking() const {
  std::vector<MemberId> ids;
  for (const auto& [id, worker] : workers_) {
    if (worker.asks) {
      ids.push_back(id);
    }
  }
  std::ranges::sort(ids, {}, [this](MemberId id) { return workers_.at(id).order; });
  return ids;
}

bool LeaseHolders::is_leased(std::uint64_t slice) const {
  return std::ranges::any_of(workers_, [slice](const auto& entry) {
    return std::ranges::any_of(entry.second.leases,
                               [slice](const Lease& lease) { return covers(lease, slice); });
  });
}

std::size_t LeaseHolders::under_way(MemberId id, std::uint64_t version,
                                    const std::set<std::uint64_t>& staged) const {
  const auto is_open = [&](const Lease& lease) {
    return lease.version == version && !staged.contains(lease.first);
  };
  return static_cast<std::size_t>(std::ranges::count_if(workers_.at(id).leases, is_open));
}

std::optional<MemberId> LeaseHolders::holder_of(std::uint64_t version) const {
  for (const bool asks : {true, false}) {
    for (const auto& [id, worker] : workers_) {
      const bool took_part = std::ranges::any_of(
          worker.leases, [version](const Lease& lease) { return lease.version == version; });
      if (took_part && worker.asks == asks) {
        return id;
      }
    }
  }
  return std::nullopt;
}

bool LeaseHolders::is_alone(MemberId id) const {
  return std::ranges::none_of(
      workers_, [id](const auto& entry) { return entry.first != id && entry.second.is_connected; });
}

void LeaseHolders::check_invariants() const {
  for (const auto& [id, worker] : workers_) {
    ENSURE(!worker.asks || (worker.order > 0 && worker.order <= requests_),
           "a worker that asks has a place");
    std::uint64_t before = 0;
    for (const Lease& lease : worker.leases) {
      ENSURE(before < lease.serial && lease.serial <= worker.serial,
             "the leases of a worker are numbered in the order in which they were granted");
      ENSURE(lease.clock + lease.count <= worker.clock, "a worker's clock counts all its leases");
      before = lease.serial;
    }
  }
}

}  // namespace mayfly::parameter_server
