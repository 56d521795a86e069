#pragma once

// The workers of the present view: the leases that each of them holds, and which of them ask for
// one. It does not know the plan; the table of leases decides which slices are leased. Pure; any
// thread.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.hpp"
#include "collectives/parameter_server/core/lease.hpp"

namespace mayfly::parameter_server {

class LeaseHolders {
 public:
  struct Worker {
    bool is_connected = false;           ///< it has connected at least once
    bool asks = false;                   ///< it asks for a lease
    std::uint64_t order = 0;             ///< its place in the order of asking
    std::uint64_t serial = 0;            ///< serial of its newest lease
    std::uint64_t clock = 0;             ///< clock of its next lease
    bool rests = true;                   ///< other workers do not wait for its clock
    std::optional<std::uint64_t> round;  ///< the version that its newest lease asked for
    std::vector<Lease> leases;  ///< leases that it has not confirmed, in the order of serials
  };

  /// Forgets all workers that are not in the set; returns these with their leases.
  std::map<MemberId, Worker> set_workers(const std::set<MemberId>& workers);
  [[nodiscard]] const std::map<MemberId, Worker>& all() const { return workers_; }
  [[nodiscard]] bool contains(MemberId id) const { return workers_.contains(id); }

  // For a worker of the view:
  /// The worker has connected, or connected again, and has every lease up to `received`: returns
  /// its other leases, which were lost with a connection.
  std::vector<Lease> connected(MemberId id, std::uint64_t received);
  /// The worker's leases up to this serial are over: returns them.
  std::vector<Lease> confirmed(MemberId id, std::uint64_t through);

  // For any worker; ignored if it is not in the view:
  void asks(MemberId id);
  /// The worker has nothing to do.
  void rests(MemberId id);
  /// The worker no longer holds a lease for this slice alone.
  void drop(MemberId id, std::uint64_t slice);

  /// Gives a worker of the view a lease; returns it with its serial and clock. If the worker had
  /// nothing to do, its clock is at least that of the slowest worker that holds a lease.
  Lease grant(MemberId id, Lease lease);

  /// The workers that ask, in the order in which they began to ask.
  [[nodiscard]] std::vector<MemberId> asking() const;
  /// Some worker is to compute this slice.
  [[nodiscard]] bool is_leased(std::uint64_t slice) const;
  /// Number of slices that this worker of the view is to compute with parameters of this version,
  /// except those in `staged`; for leases of one slice each.
  [[nodiscard]] std::size_t under_way(MemberId id, std::uint64_t version,
                                      const std::set<std::uint64_t>& staged) const;
  /// A worker that holds a lease with parameters of this version, preferably one that asks. Such a
  /// worker keeps these parameters as long as any shard lacks a slice of their round.
  [[nodiscard]] std::optional<MemberId> holder_of(std::uint64_t version) const;
  /// No worker but this one is connected.
  [[nodiscard]] bool is_alone(MemberId id) const;

  /// Invariants between any two calls.
  void check_invariants() const;

 private:
  [[nodiscard]] std::optional<std::uint64_t> slowest_clock() const;

  std::map<MemberId, Worker> workers_;
  std::uint64_t requests_ = 0;  // number of times that a worker began to ask
};

}  // namespace mayfly::parameter_server
