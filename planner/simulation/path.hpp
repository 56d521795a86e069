#pragma once

// One path of a job, fast: events are losses, joins and ends only, so a path costs O(losses). It
// keeps the rules of cloud_hooks/core/ReplacementPolicy, with the product's own OfferCatalog, for
// what a job meets: requests, refusals, bursts, ends of lifetimes, compositions, on-demand servers
// in place of spot servers and back, limits of offers, budgets. simulation/policy_path runs the
// policy itself; tests compare both path by path. Pure; one thread for each runner.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "cloud_hooks/core/offer_catalog.hpp"
#include "planner/simulation/earliest.hpp"
#include "planner/simulation/path_market.hpp"
#include "planner/simulation/training.hpp"

namespace mayfly::planner {

/// Rules of the replacement policy that a path needs; their defaults are the policy's own.
struct PolicyRules {
  double gather_s;
  double start_timeout_s;
  double join_timeout_s;
  double leave_before_end_s;  ///< of a server's lifetime
  double shun_after_burst_s;
  double back_to_spot_after_s;
  double stop_margin_s;  ///< the job is stopped so long before the end of its budget
};
/// As ReplacementOptions says.
[[nodiscard]] PolicyRules default_rules();

class PathRunner {
 public:
  /// `market` and `job` must outlive it. `horizon_s`: where a path that is not done is given up.
  PathRunner(const Market& market, const JobModel& job, const Candidate& candidate,
             double horizon_s);

  /// The path of that number; depends on nothing but the seed, the number and what the runner was
  /// made of.
  [[nodiscard]] PathOutcome run(std::uint64_t seed, std::uint64_t path);

 private:
  struct Server {
    std::size_t offer = 0;  // of the candidate
    double asked_s = 0;
    std::uint64_t order = 0;  // of the grants
    ServerFate fate;
    double leaves_s = kNever;  // by the policy: at the end of its lifetime, or given up
    bool works = false;
    [[nodiscard]] double next_s() const;
  };
  struct Exchange {
    std::uint64_t old_serial = 0;  // on demand, until its successor works
    std::size_t old_offer = 0;
    std::uint64_t new_serial = 0;
  };
  /// A request that will be refused, from when it is sent until the policy hears of it.
  struct Refusal {
    std::size_t offer = 0;
    std::uint32_t count = 0;
  };
  struct PossibleExchange {
    std::size_t server = 0;
    std::size_t offer = 0;
    double due_s = kNever;
  };

  void begin(std::uint64_t seed, std::uint64_t path);
  [[nodiscard]] std::size_t next_server() const;
  void happen(std::size_t server, double at_s);
  void server_event(std::size_t index);
  void joined(std::size_t index);
  void strike();
  void lose(std::size_t index);
  void let_go(std::size_t index);
  void remove(std::size_t index);
  void ask_later();
  void ask();
  void ask_for_missing(std::vector<Refusal>& refusals);
  void request(std::uint32_t wanted, const std::vector<std::uint32_t>& most,
               std::vector<Refusal>& refusals);
  void refuse(std::size_t offer);
  std::uint64_t grant(std::size_t offer, double lifetime_s);
  void shun_bursts();
  void update();
  void plan_exchange();
  void begin_exchange();
  void end_exchange(bool failed);
  void plan_fall_back();
  [[nodiscard]] std::uint32_t target() const { return candidate_.workers + candidate_.spares; }
  [[nodiscard]] std::uint32_t missing() const;
  [[nodiscard]] std::vector<std::uint32_t> present() const;
  [[nodiscard]] std::uint32_t on_demand_present() const;
  [[nodiscard]] std::vector<std::uint32_t> lacking() const;
  [[nodiscard]] bool may_give_way(std::size_t offer,
                                  const std::vector<std::uint32_t>& present_now) const;
  [[nodiscard]] bool is_better(std::size_t offer, std::size_t than) const;
  [[nodiscard]] double cost_of(const Server& server) const;
  [[nodiscard]] double billed(std::size_t offer, double asked_s) const;
  [[nodiscard]] double spent() const;
  [[nodiscard]] double per_hour() const;
  void bill(double more_per_hour, double at_once);
  [[nodiscard]] double spent_at_most() const;
  [[nodiscard]] double budget_alarm_s(double before_s) const;
  [[nodiscard]] bool is_budget_used_up() const;
  [[nodiscard]] std::uint32_t room(std::size_t offer, const std::vector<Refusal>& refusals) const;
  [[nodiscard]] std::uint32_t affordable(std::size_t offer, std::uint32_t wanted,
                                         const std::vector<Refusal>& refusals) const;
  [[nodiscard]] double lifetime_of(std::size_t offer, const std::vector<Refusal>& refusals) const;

  const JobModel& job_;
  const Candidate candidate_;
  const double horizon_s_;
  const PolicyRules rules_;
  const CandidateOffers offers_;
  const cloud_hooks::OfferCatalog fresh_catalog_;
  const std::vector<std::uint32_t> wanted_;  // by offer: what the composition wants
  std::vector<double> price_per_speed_;      // by offer
  bool has_exchanges_ = false;               // offers that may take each other's place
  PathMarket market_;
  Training training_;

  // Of the present path.
  cloud_hooks::OfferCatalog catalog_;
  PathOutcome outcome_;
  double now_s_ = 0;
  std::vector<Server> servers_;
  Earliest events_;                    // of the servers, by their places in servers_
  std::vector<std::uint32_t> counts_;  // of the servers, by offer
  std::uint64_t granted_ = 0;          // servers
  std::vector<std::uint32_t> losses_;  // by offer, of this batch
  double ask_at_s_ = kNever;
  bool waits_for_stock_ = false;
  std::uint32_t floor_ = 0;
  double fall_back_at_s_ = kNever;
  std::optional<Exchange> exchange_;
  PossibleExchange next_exchange_;
  int exchange_failures_ = 0;
  double exchange_due_s_ = 0;
  double exchange_poor_until_s_ = 0;  // the budget does not allow it
  double closed_bill_ = 0;            // of servers that are gone, as the policy bills them
  // The same of all servers, as a bound: the sums take a look at each server.
  double billed_most_ = 0;  // until billed_at_s_
  double billed_at_s_ = 0;
  double billed_per_hour_ = 0;  // since then, but for rounding
};

}  // namespace mayfly::planner
