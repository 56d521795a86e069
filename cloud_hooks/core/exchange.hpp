#pragma once

// Exchanges a server that was requested only as a substitute: an on-demand server for a spot server
// that is much cheaper for its speed, or, with a composition, a server of an offer that has too
// many for one of an offer that has too few.
//
// One server is exchanged at a time, and only if all workers are running, no request is open, and
// the other offer has refused nothing for a while. The new server is requested first, and the old
// one leaves at a boundary when the worker of its successor has computed something, so the exchange
// never lowers the number of workers. Until then the old server does not count as staying. If the
// successor does not come, the old server stays, and the next attempt is made later. Pure; one
// thread.

#include <cstddef>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "cloud_hooks/core/demand.hpp"
#include "cloud_hooks/core/fleet.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/open_requests.hpp"
#include "cloud_hooks/core/provisioner.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

class Exchange {
 public:
  /// All arguments must outlive this object.
  Exchange(const ReplacementOptions& options, const OfferCatalog& catalog, const Demand& demand,
           const OpenRequests& requests, Fleet& fleet, Provisioner& provisioner);

  [[nodiscard]] bool is_under_way() const { return under_way_.has_value(); }
  /// Begins an exchange if one is due. Only while none is under way, no server is missing, and
  /// servers may be requested.
  void begin(Instant now);
  /// Only while an exchange is under way. Ends it if the successor works or will not come. If no
  /// more may be requested, ends it, too, and the old server stays.
  void watch(Instant now, bool may_request);
  /// The next time for watch(), or begin(), if no event happens before; none = never.
  [[nodiscard]] std::optional<Instant> next_wake(Instant now) const;

 private:
  struct UnderWay {
    std::string server;      // that gives way, until its successor works
    std::string request_id;  // of the successor
  };
  struct Possible {
    std::string server;
    std::size_t offer;
    Instant due;
  };
  void stop();
  void end(Instant now);
  [[nodiscard]] std::optional<Possible> find() const;
  [[nodiscard]] bool may_give_way(const Fleet::Server& server) const;
  [[nodiscard]] bool is_better(std::size_t offer, std::size_t than) const;

  const ReplacementOptions& options_;
  const OfferCatalog& catalog_;
  const Demand& demand_;
  const OpenRequests& requests_;
  Fleet& fleet_;
  Provisioner& provisioner_;
  std::optional<UnderWay> under_way_;
  int failures_ = 0;  // in a row
  Instant due_{};     // no exchange begins before this time
};

}  // namespace mayfly::cloud_hooks
