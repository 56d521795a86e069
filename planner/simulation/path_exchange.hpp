#pragma once

// The exchange of a server that was requested only as a substitute: an on-demand server for a spot
// server that is much cheaper for its speed or, with a composition, a server of an offer that has
// too many for one of an offer that has too few. One server is exchanged at a time: its successor
// is requested first, and the old server leaves when the successor's worker has joined. Each rule
// names the one of cloud_hooks/core/ReplacementPolicy that it must agree with. Offers are those of
// the candidate, times are seconds since the job's begin. Pure; one thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "cloud_hooks/core/offer_catalog.hpp"
#include "planner/simulation/demand.hpp"
#include "planner/simulation/path_servers.hpp"
#include "planner/simulation/policy_rules.hpp"

namespace mayfly::planner {

class PathExchange {
 public:
  /// `catalog` has the candidate's offers. `offers`, `demand` and `servers` must outlive the
  /// exchange.
  PathExchange(const PolicyRules& rules, const CandidateOffers& offers,
               const cloud_hooks::OfferCatalog& catalog, const Demand& demand,
               PathServers& servers);

  /// A new path.
  void begin();

  /// Call it after all events of one instant. Plans the next exchange. `is_settled`: no server is
  /// missing, and no request is about to be sent. `catalog` knows which offers are calm.
  void plan(const cloud_hooks::OfferCatalog& catalog, bool is_settled, double now_s);
  /// When to request a server of offer() for the planned exchange; kNever if there is none.
  [[nodiscard]] double due_s() const { return next_.due_s; }
  [[nodiscard]] std::size_t offer() const { return next_.offer; }

  // The outcome of the planned exchange: call exactly one of these when it is due.
  /// The successor was granted.
  void granted(std::uint64_t successor);
  /// The request was refused.
  void refused(double now_s) { end(true, now_s); }
  /// The budget does not allow it: the next attempt is a minute later, or after
  /// budget_changed().
  void postpone(double now_s);

  /// An event has happened that may change the limits of the budget.
  void budget_changed() { no_budget_until_s_ = 0; }
  /// The server's worker has joined. If the server is a successor, returns the place of the server
  /// that it replaces, which has to leave now.
  [[nodiscard]] std::optional<std::size_t> joined(std::uint64_t serial, double now_s);
  /// The server is gone. If it was the one that gives way, its successor takes its place; if it was
  /// the successor, the exchange has failed.
  void removed(std::uint64_t serial, double now_s);

 private:
  struct Possible {
    std::size_t server = 0;  // its place
    std::size_t offer = 0;
    double due_s = kNever;
  };
  struct Current {
    std::uint64_t old_serial = 0;
    std::uint64_t new_serial = 0;
  };
  void find(const cloud_hooks::OfferCatalog& catalog);
  [[nodiscard]] bool is_better(std::size_t offer, std::size_t than) const;
  [[nodiscard]] bool comes_before(const Possible& a, const Possible& b) const;
  void end(bool failed, double now_s);

  const PolicyRules rules_;
  const CandidateOffers& offers_;
  const Demand& demand_;
  PathServers& servers_;
  std::vector<double> price_per_speed_;  // by offer
  bool is_possible_ = false;             // some offers may replace others

  // State of the present path:
  Possible next_;
  std::optional<Current> current_;
  int failures_ = 0;  // in a row
  double not_before_s_ = 0;
  double no_budget_until_s_ = 0;
  std::vector<bool> gives_way_;                    // by offer; kept to use its memory again
  std::vector<std::optional<Instant>> calm_from_;  // by offer; kept to use its memory again
};

}  // namespace mayfly::planner
