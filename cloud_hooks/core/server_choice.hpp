#pragma once

// Which servers are given up if the job has to give up some: the ones that it wants least. A view
// of the fleet without a state of its own. Pure; one thread.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/demand.hpp"
#include "cloud_hooks/core/fleet.hpp"
#include "cloud_hooks/core/least_missed.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

class ServerChoice {
 public:
  /// All arguments must outlive this object.
  ServerChoice(const ReplacementOptions& options, const OfferCatalog& catalog, const Bill& bill,
               const Demand& demand, const Fleet& fleet);

  /// The ids of `count` servers, or fewer if not so many may be given up. With a composition,
  /// servers of offers that have more than it wants go first, the dearest offers first. Otherwise,
  /// and within each of these offers, servers without a worker go first, then the ones that the job
  /// misses least (least_missed.hpp). As long as no speed is measured, these are the most expensive
  /// for their stated speed, then the newest. On-demand servers go only above their floor.
  [[nodiscard]] std::vector<std::string> least_wanted(Instant now, std::uint32_t count) const;
  /// For messages: "s4 (gpu in a (spot)), s2 (...) with 31 % of the speed and 45 % of the price of
  /// 4 servers".
  [[nodiscard]] std::string describe(Instant now, const std::vector<std::string>& ids) const;

 private:
  /// Whether a server is among those to choose from.
  using IsAmong = std::function<bool(const std::string& id, const Fleet::Server& server)>;
  [[nodiscard]] std::vector<std::string> least_wanted_among(Instant now, std::uint32_t count,
                                                            const IsAmong& is_among) const;
  [[nodiscard]] std::vector<std::string> least_missed_workers(Instant now, std::size_t count,
                                                              std::size_t on_demand_most,
                                                              const IsAmong& is_among) const;
  [[nodiscard]] ServerWorth worth_of(Instant now, const std::string& id,
                                     const Fleet::Server& server) const;
  [[nodiscard]] bool may_be_given_up(const Fleet::Server& server) const;

  const ReplacementOptions& options_;
  const OfferCatalog& catalog_;
  const Bill& bill_;
  const Demand& demand_;
  const Fleet& fleet_;
};

}  // namespace mayfly::cloud_hooks
