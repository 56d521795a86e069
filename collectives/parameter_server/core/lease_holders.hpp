#pragma once

// The workers of the present view: the leases that each of them holds, and which of them ask for
// one. Knows no plan; the table of leases decides what is leased. Pure; no thread matters.

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
    bool is_connected = false;           ///< it was at some time
    bool asks = false;                   ///< for a lease
    std::uint64_t order = 0;             ///< of asking
    std::uint64_t serial = 0;            ///< of its newest lease
    std::uint64_t clock = 0;             ///< of its next lease
    bool rests = true;                   ///< other workers do not wait for its clock
    std::optional<std::uint64_t> round;  ///< the version that its newest lease asked for
    std::vector<Lease> leases;           ///< that it has not confirmed, in the order of serials
  };

  /// Forgets all other workers; returns those that were forgotten, with their leases.
  std::map<MemberId, Worker> set_workers(const std::set<MemberId>& workers);
  [[nodiscard]] const std::map<MemberId, Worker>& all() const { return workers_; }
  [[nodiscard]] bool contains(MemberId id) const { return workers_.contains(id); }

  // The worker is one of the view:
  /// It has connected, or connected again, and has every lease up to `received`: returns the
  /// others, which were lost with a connection.
  std::vector<Lease> connected(MemberId id, std::uint64_t received);
  /// Its leases up to this serial are over: returns them.
  std::vector<Lease> confirmed(MemberId id, std::uint64_t through);

  // A worker that is not one of the view is ignored:
  void asks(MemberId id);
  /// It has nothing to do.
  void rests(MemberId id);
  /// It does not hold a lease of only this slice any more.
  void drop(MemberId id, std::uint64_t slice);

  /// Gives a worker of the view a lease; returns it with its serial and clock. A worker that had
  /// nothing to do has as many slices behind it as the slowest one that holds a lease.
  Lease grant(MemberId id, Lease lease);

  /// The workers that ask, in the order in which they did.
  [[nodiscard]] std::vector<MemberId> asking() const;
  /// Some worker is to compute this slice.
  [[nodiscard]] bool is_leased(std::uint64_t slice) const;
  /// A worker that holds a lease with parameters of this version, rather one that asks. Such a
  /// worker keeps these parameters as long as any shard lacks a slice of their round.
  [[nodiscard]] std::optional<MemberId> holder_of(std::uint64_t version) const;
  /// No worker but this one is connected.
  [[nodiscard]] bool is_alone(MemberId id) const;

  /// Invariants between any two calls.
  void check_invariants() const;

 private:
  [[nodiscard]] std::optional<std::uint64_t> slowest_clock() const;

  std::map<MemberId, Worker> workers_;
  std::uint64_t asked_ = 0;  // so many times
};

}  // namespace mayfly::parameter_server
