#pragma once

// The parts of ReplacementPolicy, in the order in which they depend on each other: each refers only
// to parts above it.
//
// | part | knows |
// |---|---|
// | catalog | which offers may be requested, in which order |
// | bill, budget | what was spent; what may be spent, and when the job must stop |
// | lists | when to ask for a list of servers, and what it proves that a list lacks one |
// | shortage | which losses are one batch |
// | fleet | which servers exist, which members run on them, and which of both count |
// | requests | the requests without a known outcome, which it repeats |
// | demand | how many servers are wanted, and how many of them are missing |
// | lifecycle | the consequences of each step in a server's life |
// | provisioner | how to request the missing servers |
// | surplus | which servers are too many, and how to give them up |
// | exchange | when to go back to spot, or to the composition |

#include <utility>

#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/budget.hpp"
#include "cloud_hooks/core/demand.hpp"
#include "cloud_hooks/core/effect_list.hpp"
#include "cloud_hooks/core/exchange.hpp"
#include "cloud_hooks/core/fleet.hpp"
#include "cloud_hooks/core/list_schedule.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/open_requests.hpp"
#include "cloud_hooks/core/provisioner.hpp"
#include "cloud_hooks/core/replacement_options.hpp"
#include "cloud_hooks/core/server_lifecycle.hpp"
#include "cloud_hooks/core/shortage.hpp"
#include "cloud_hooks/core/surplus.hpp"

namespace mayfly::cloud_hooks {

struct ReplacementParts {
  explicit ReplacementParts(ReplacementOptions wanted) : options(std::move(wanted)) {}

  const ReplacementOptions options;
  EffectList effects;  // of the present event
  OfferCatalog catalog{options.offers, options.backoff};
  Bill bill{options.spent_before, options.billed_at_least};
  Budget budget{options, bill};
  ListSchedule lists{options};
  Shortage shortage{options.gather};
  Fleet fleet{options, catalog, effects};
  OpenRequests requests{options, catalog, bill, lists, effects};
  Demand demand{options, catalog, fleet, requests};
  ServerLifecycle lifecycle{options, catalog, bill, lists, shortage, effects, fleet, requests};
  Provisioner provisioner{options, catalog, budget, demand, fleet, shortage, effects, requests};
  Surplus surplus{options, catalog, bill, budget, demand, shortage, effects, fleet};
  Exchange exchange{options, catalog, demand, requests, fleet, provisioner};

  ReplacementParts(const ReplacementParts&) = delete;  // they refer to each other
  ReplacementParts& operator=(const ReplacementParts&) = delete;
};

}  // namespace mayfly::cloud_hooks
