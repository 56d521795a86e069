#pragma once

// When servers are requested on a path, and of which offers: missing servers are requested of the
// best offers that refuse nothing at present, by the OfferCatalog that jobs use. Each rule names
// the one of cloud_hooks/core/ReplacementPolicy that it must agree with. Offers are those of the
// candidate, times are seconds since the job's begin. Pure; one thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "cloud_hooks/core/offer_catalog.hpp"
#include "planner/simulation/demand.hpp"
#include "planner/simulation/path_budget.hpp"
#include "planner/simulation/path_market.hpp"

namespace mayfly::planner {

class PathRequests {
 public:
  /// `fresh`: the catalog at the beginning of each path. All but `rules` must outlive the requests.
  PathRequests(const PolicyRules& rules, const CandidateOffers& offers,
               const cloud_hooks::OfferCatalog& fresh, const Demand& demand,
               const PathBudget& budget, PathMarket& market, PathServers& servers);

  /// A new path, whose first requests are due at once.
  void begin();

  /// When to call ask(), if no event happens before; kNever while nothing is to be requested.
  [[nodiscard]] double due_s() const { return due_s_; }
  /// Requests all missing servers. Those that are granted are among the servers when it returns.
  void ask(double now_s);
  /// Requests one server, for an exchange, which the budget must allow. Returns its
  /// ServerFate::serial, or nothing if the request is refused.
  std::optional<std::uint64_t> ask_for_one(std::size_t offer, double now_s);

  // Events of servers, reported after they are gone.
  /// A server was taken whose worker had joined. In this case and the next two, missing servers are
  /// requested soon, together with those that are lost until then.
  void lost(std::size_t offer, double now_s);
  /// A server was taken before its worker had joined.
  void taken_early(std::size_t offer, double now_s);
  /// A server was given up at the end of its lifetime.
  void lifetime_ended(double now_s) { ask_soon(now_s); }
  /// A server was given up because it did not run in time. In this case and the next one, missing
  /// servers are requested at once.
  void not_started(std::size_t offer, double now_s);
  /// A server was given up that ran, but whose worker had not joined in time.
  void not_joined(std::size_t offer, double now_s);
  /// A worker on the offer has joined.
  void worked(std::size_t offer) { catalog_.worked(offer); }

  /// Whether servers are missing because their requests found no capacity.
  [[nodiscard]] bool waits_for_stock() const { return waits_for_stock_; }
  /// Whether nothing is missing, and nothing is about to be requested.
  [[nodiscard]] bool is_settled() const;
  [[nodiscard]] std::uint32_t refusals() const { return refusals_; }
  [[nodiscard]] const cloud_hooks::OfferCatalog& catalog() const { return catalog_; }

 private:
  template <typename IsAmong>
  [[nodiscard]] std::uint32_t coming(IsAmong is_among) const;
  [[nodiscard]] std::uint32_t missing() const;
  void ask_for_missing(double now_s);
  template <typename MostOf>
  void request(std::uint32_t wanted, MostOf most_of, double now_s);
  std::uint64_t grant(std::size_t offer, double lifetime_s, double now_s);
  void refused(std::size_t offer, double now_s);
  void ask_soon(double now_s);
  void ask_at_once(double now_s);
  void shun_bursts(double now_s);

  const PolicyRules rules_;
  const CandidateOffers& offers_;
  const cloud_hooks::OfferCatalog& fresh_catalog_;
  const Demand& demand_;
  const PathBudget& budget_;
  PathMarket& market_;
  PathServers& servers_;

  // State of the present path:
  cloud_hooks::OfferCatalog catalog_;
  double due_s_ = 0;
  bool waits_for_stock_ = false;
  std::uint32_t refusals_ = 0;
  std::vector<std::uint32_t> losses_;  // by offer: those whose replacements were not requested yet
  std::vector<OpenRequest> open_;      // in the order of the requests; empty between calls
};

}  // namespace mayfly::planner
