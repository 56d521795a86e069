#pragma once

// Requests the servers that are missing, of the best offers, within the offers' limits and the
// budget. Pure; one thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "cloud_hooks/core/budget.hpp"
#include "cloud_hooks/core/demand.hpp"
#include "cloud_hooks/core/effect_list.hpp"
#include "cloud_hooks/core/fleet.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/open_requests.hpp"
#include "cloud_hooks/core/replacement_options.hpp"
#include "cloud_hooks/core/shortage.hpp"

namespace mayfly::cloud_hooks {

class Provisioner {
 public:
  /// All arguments must outlive this object.
  Provisioner(const ReplacementOptions& options, OfferCatalog& catalog, const Budget& budget,
              const Demand& demand, const Fleet& fleet, Shortage& shortage, EffectList& effects,
              OpenRequests& requests);

  /// Requests the missing servers as soon as the batch of losses is complete, but not before the
  /// servers of earlier processes are known.
  void request_missing(Instant now, bool knows_earlier_servers);
  /// The time at which request_missing() may have more to do, if no event happens before; none =
  /// never.
  [[nodiscard]] std::optional<Instant> next_wake(Instant now) const;

  /// How many of `wanted` servers of the offer its limit and the budget allow.
  [[nodiscard]] std::uint32_t affordable(Instant now, std::size_t offer,
                                         std::uint32_t wanted) const;
  /// Requests servers of the offer, within affordable(). Returns the request's id.
  std::string request(Instant now, std::size_t offer, std::uint32_t count);

 private:
  /// The most servers that may be requested of an offer.
  using MostOf = std::function<std::uint32_t(std::size_t offer)>;
  std::uint32_t request_up_to(Instant now, std::uint32_t wanted, const MostOf& most_of);
  std::uint32_t request_workers(Instant now, std::uint32_t missing);
  void shun_bursts(Instant now);
  void note_exhausted(Instant now, std::uint32_t missing, bool lacks_workers);

  const ReplacementOptions& options_;
  OfferCatalog& catalog_;
  const Budget& budget_;
  const Demand& demand_;
  const Fleet& fleet_;
  Shortage& shortage_;
  EffectList& effects_;
  OpenRequests& requests_;
};

}  // namespace mayfly::cloud_hooks
