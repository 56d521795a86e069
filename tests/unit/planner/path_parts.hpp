#pragma once

// The parts of a path's requests and exchanges, for tests of these alone.

#include "planner/simulation/demand.hpp"
#include "planner/simulation/path_budget.hpp"
#include "planner/simulation/path_market.hpp"
#include "planner/simulation/path_servers.hpp"
#include "planner/simulation/working_set.hpp"

namespace mayfly::planner::test_support {

struct PathParts {
  PathParts(Market the_market, JobModel the_job, const Candidate& candidate)
      : market(std::move(the_market)),
        job(std::move(the_job)),
        offers(market, candidate),
        catalog(terms_of(market, job, candidate), {}),
        simulated(market, job, offers),
        servers(offers, job.billing),
        demand(offers, candidate, catalog, servers),
        budget(rules, offers, job, servers) {
    simulated.begin(PathDraws(1, 0));
  }
  PathParts(const PathParts&) = delete;
  PathParts& operator=(const PathParts&) = delete;

  const Market market;
  const JobModel job;
  const PolicyRules rules = default_rules();
  const CandidateOffers offers;
  const cloud_hooks::OfferCatalog catalog;
  PathMarket simulated;
  PathServers servers;
  Demand demand;
  PathBudget budget;
};

}  // namespace mayfly::planner::test_support
