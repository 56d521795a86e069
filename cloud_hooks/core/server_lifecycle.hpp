#pragma once

// Applies each step in a server's life (it appears, starts, is taken away, is overdue, is gone) to
// the bill, to its offer, and to the batch of losses. Pure; one thread.
//
// The provider's list is the truth, with one exception: a new server may be missing in it for
// `absence_grace`. A server that this process does not know is adopted, and paid for, unless it is
// already ending.

#include <map>
#include <string>
#include <vector>

#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/effect_list.hpp"
#include "cloud_hooks/core/fleet.hpp"
#include "cloud_hooks/core/list_schedule.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/open_requests.hpp"
#include "cloud_hooks/core/replacement_options.hpp"
#include "cloud_hooks/core/shortage.hpp"

namespace mayfly::cloud_hooks {

class ServerLifecycle {
 public:
  /// All arguments must outlive this object.
  ServerLifecycle(const ReplacementOptions& options, OfferCatalog& catalog, Bill& bill,
                  const ListSchedule& lists, Shortage& shortage, EffectList& effects, Fleet& fleet,
                  OpenRequests& requests);

  /// Compares the fleet with a list that was requested at `lists.requested_at()`.
  void reconcile(Instant now, const std::vector<ServerStatus>& servers);
  /// The outcome of a request, whose servers may not be known yet. Does not settle the request
  /// itself.
  void answered(Instant now, const std::string& request_id, const RequestOutcome& outcome);
  /// Acts on servers whose stage or lifetime is over.
  void watch(Instant now);

 private:
  using Open = OpenRequests::Open;

  [[nodiscard]] bool is_of_another_job(const ServerStatus& status) const;
  void note_other_jobs(const std::vector<ServerStatus>& servers);
  void appeared(Instant now, const ServerStatus& status, const Open* request);
  void appeared_too_late(Instant now, const ServerStatus& status, const Open& request);
  [[nodiscard]] Instant billed_since(Instant now, const ServerStatus& status,
                                     const Open* request) const;
  void changed(Instant now, const ServerStatus& status);
  void note_price(const Fleet::Server& server, const ServerStatus& status, double before);
  void gone(Instant now, const std::string& id, const ServerStatus& status);
  void drop_never_made(const std::string& request_id, const RequestOutcome& outcome);
  void stage_is_over(Instant now, const std::string& id, const Fleet::Server& server);
  void out_of_stock(Instant now, const Fleet::Server& server);
  void failed_to_start(Instant now, const Fleet::Server& server, const std::string& id,
                       const std::string& what);
  void failed_to_start(Instant now, std::size_t offer, const std::string& id,
                       const std::string& what);

  const ReplacementOptions& options_;
  OfferCatalog& catalog_;
  Bill& bill_;
  const ListSchedule& lists_;
  Shortage& shortage_;
  EffectList& effects_;
  Fleet& fleet_;
  OpenRequests& requests_;
  std::map<std::string, Instant> billed_until_;  // of servers that seemed to be gone
  bool other_jobs_noted_ = false;
};

}  // namespace mayfly::cloud_hooks
