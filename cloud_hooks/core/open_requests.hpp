#pragma once

// The requests that were sent and whose outcome is not known yet. Each is on the bill, for those of
// its servers that have not been seen, from the moment when it is sent. A request without a known
// answer is only repeated unchanged, with the same id, until it is answered; after `repeats_max`
// repetitions a list of servers shows what became of it. Pure; one thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/random.hpp"
#include "base/time.hpp"
#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/effect_list.hpp"
#include "cloud_hooks/core/list_schedule.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

class OpenRequests {
 public:
  struct Open {
    ServerRequest request;
    std::size_t offer = 0;
    Instant sent;  // for the first time: billing may have begun then
    int repeats = 0;
    std::optional<Instant> repeat_at;  // none: an answer is awaited
    std::optional<Instant> unsettled;  // given up then; a list settles it
    std::set<std::string> servers;     // known to belong to it
    Instant looked;                    // when the last list was requested, or this request sent
    Duration unseen{};                 // the longest time between two such lists
    [[nodiscard]] std::uint32_t missing() const {
      const auto known = static_cast<std::uint32_t>(servers.size());
      return known < request.count ? request.count - known : 0;  // a list may show more
    }
    /// Servers that the job still expects.
    [[nodiscard]] std::uint32_t coming() const { return unsettled ? 0 : missing(); }
  };

  /// All arguments must outlive this object.
  OpenRequests(const ReplacementOptions& options, OfferCatalog& catalog, Bill& bill,
               ListSchedule& lists, EffectList& effects);

  /// Sends a new request for `count` servers. Returns its id. `loss`: the time of the first loss
  /// that they replace.
  std::string send(Instant now, std::size_t offer, std::uint32_t count, Duration lifetime,
                   std::optional<Instant> loss);
  /// Repeats the requests that are due. Without `may_repeat`, gives up all that wait to be
  /// repeated.
  void repeat(Instant now, bool may_repeat);

  /// The open request with that id; null if there is none, for example because it was answered.
  /// Valid until it is answered or settled.
  [[nodiscard]] const Open* find(const std::string& id) const;
  /// A server of an open request was seen; from now on it is an item of its own on the bill.
  void saw(const std::string& id, const std::string& server);

  // The answers, each to an open request:
  /// The request has all its servers, or the others will not be started.
  void granted(Instant now, const std::string& id);
  /// An error other than kRate: its other servers will not be started. `quota_is_ours`: servers of
  /// the job draw on the same quota.
  void refused(Instant now, const std::string& id, const ProviderError& error, bool quota_is_ours);
  /// kRate: it is unknown whether servers were started, so their possible cost stays on the bill.
  /// The same request is repeated, which starts only those that are missing; after that, or at once
  /// unless it may be repeated, the list of servers settles it.
  void unanswered(Instant now, const std::string& id, const ProviderError& error, bool may_repeat);
  /// A list was processed. One that was asked for long after the last attempt contains all servers
  /// of a request that still exist. Servers that existed only between two lists were never seen but
  /// are billed: for the time without a list plus the time that a new server may be missing in one.
  void settle();

  /// Whether the outcome of every request is known.
  [[nodiscard]] bool empty() const { return open_.empty(); }
  /// Whether another request may be sent now (ReplacementOptions::requests_at_once). A request that
  /// had to wait for the answer to another one would be billed meanwhile, and could not be
  /// withdrawn.
  [[nodiscard]] bool may_send() const;
  /// Servers that the open requests should bring: for workers, for evaluators, and of one offer.
  [[nodiscard]] std::uint32_t coming_for_workers() const { return coming(false); }
  [[nodiscard]] std::uint32_t coming_for_evaluators() const { return coming(true); }
  [[nodiscard]] std::uint32_t coming_of(std::size_t offer) const;
  /// Whether a request may still bring a server for a worker, even one that was given up.
  [[nodiscard]] bool may_bring_worker() const;
  /// The next time at which a request is repeated; none = never.
  [[nodiscard]] std::optional<Instant> next_repeat() const;

 private:
  void quota_refused(Instant now, const Open& open, const ProviderError& error, bool is_ours);
  void leave_to_lists(Instant now, Open& open);
  void forget(const std::string& id);
  void bill_missing(const Open& open);
  [[nodiscard]] static std::string billing_item(const Open& open);
  [[nodiscard]] std::string describe(const Open& open) const;
  [[nodiscard]] bool is_for_evaluators(const Open& open) const;
  [[nodiscard]] std::uint32_t coming(bool for_evaluators) const;

  const ReplacementOptions& options_;
  OfferCatalog& catalog_;
  Bill& bill_;
  ListSchedule& lists_;
  EffectList& effects_;
  const CounterRandom random_;  // for request ids
  std::uint64_t sent_ = 0;
  std::map<std::string, Open> open_;  // by id
};

}  // namespace mayfly::cloud_hooks
