#pragma once

// One path of a job, fast: events are losses, joins and ends only, so a path costs O(losses). It
// follows the rules of cloud_hooks/core/ReplacementPolicy for the events of a job: requests,
// refusals, bursts, ends of lifetimes, compositions, on-demand servers in place of spot servers and
// back, limits of offers, budgets. simulation/policy_path runs the policy itself; tests compare
// both path by path. Pure; one thread for each runner.

#include <cstdint>

#include "planner/simulation/fall_back.hpp"
#include "planner/simulation/path_exchange.hpp"
#include "planner/simulation/path_requests.hpp"

namespace mayfly::planner {

class PathRunner {
 public:
  /// `market` and `job` must outlive it. `horizon_s`: the time at which a path that is not done is
  /// given up.
  PathRunner(const Market& market, const JobModel& job, const Candidate& candidate,
             double horizon_s);
  PathRunner(const PathRunner&) = delete;  // its parts refer to each other
  PathRunner& operator=(const PathRunner&) = delete;

  /// The path of that number; depends only on the seed, the number and the arguments of the
  /// constructor.
  [[nodiscard]] PathOutcome run(std::uint64_t seed, std::uint64_t path);

 private:
  void begin(const PathDraws& draws);
  [[nodiscard]] double next_s() const;
  void happen();
  void server_event(std::size_t place);
  void joined(std::size_t place);
  void strike();
  void lose(std::size_t place);
  void let_go(std::size_t place);
  void remove(std::size_t place);
  void begin_exchange();
  void update();

  const JobModel& job_;
  const double horizon_s_;
  const PolicyRules rules_;
  const CandidateOffers offers_;
  const cloud_hooks::OfferCatalog catalog_;  // as it is at the beginning of each path
  PathMarket market_;
  Training training_;
  PathServers servers_;
  Demand demand_;
  FallBack fall_back_;
  PathBudget budget_;
  PathRequests requests_;
  PathExchange exchange_;
  double now_s_ = 0;
};

}  // namespace mayfly::planner
