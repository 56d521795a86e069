#pragma once

// The exchange of a server that was requested only for lack of others: one on demand for a spot
// server that is much cheaper for its speed or, with a composition, one of an offer that has more
// servers than wanted for one of an offer that has fewer. One server is exchanged at a time: its
// successor is requested first, and it leaves when that one's worker has joined. Each rule names
// the one of cloud_hooks/core/ReplacementPolicy that it must agree with. Offers are those of the
// candidate, times are seconds since the job's begin. Pure; one thread.

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

  /// Call after all that happens at once. Plans the next exchange: `is_settled` says that no server
  /// is missing and no request is about to be sent, `catalog` which offers are calm.
  void plan(const cloud_hooks::OfferCatalog& catalog, bool is_settled, double now_s);
  /// When to request a server of offer() for the planned exchange; kNever if there is none.
  [[nodiscard]] double due_s() const { return next_.due_s; }
  [[nodiscard]] std::size_t offer() const { return next_.offer; }

  // What became of the planned exchange: exactly one of these when it is due.
  /// The successor was granted.
  void granted(std::uint64_t successor);
  /// The request was refused.
  void refused(double now_s) { end(true, now_s); }
  /// The budget does not allow it: the next attempt is a minute later, or after any news.
  void postpone(double now_s);

  /// Something has happened that may change what the budget allows.
  void news() { poor_until_s_ = 0; }
  /// The server's worker has joined. Returns the place of the server that has to leave now, if it
  /// was its successor.
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
  bool is_possible_ = false;             // some offers may take the place of others

  // State of the present path:
  Possible next_;
  std::optional<Current> current_;
  int failures_ = 0;  // in a row
  double not_before_s_ = 0;
  double poor_until_s_ = 0;
  std::vector<bool> gives_way_;               // by offer; kept for its memory
  std::vector<std::optional<Instant>> calm_;  // by offer; kept for its memory
};

}  // namespace mayfly::planner
