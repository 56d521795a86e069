#pragma once

// The offers of a job: which ones may be requested at a given time, and in which order. Pure.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

/// An offer with its price and its expected speed.
struct OfferTerms {
  Offer offer;
  double price_per_hour = 0;       ///< of one server, in the budget's currency; not negative
  double speed = 1;                ///< of one worker, relative to the other offers; above 0
  bool for_evaluator = false;      ///< requested only for evaluators, which then use no other offer
  std::uint32_t wanted = 0;        ///< servers in a composition; 0 = only as a substitute
  std::uint32_t workers_most = 0;  ///< servers at once; 0 = no limit
};

struct BackoffOptions {
  Duration first = seconds(5);
  Duration max = seconds(300);
};

// Rules that ReplacementPolicy and the planner's fast simulation of it (planner/simulation/path)
// share:
/// Losses of one offer in a batch are a burst from this number on, if no more servers are left.
inline constexpr std::uint32_t kBurstLeast = 2;
/// An exchange costs some steps at a lower speed, so an offer is better than another one only with
/// at most this share of its price for the same speed.
inline constexpr double kWorthIt = 0.8;
/// The time until the next exchange doubles with each failure in a row, at most this often.
inline constexpr int kExchangeDoublingsMax = 4;
/// An exchange that is due, but that the budget does not allow, is tried again after this time.
inline constexpr Duration kPoorRetry = seconds(60);
/// The least lifetime that is requested for a server; clouds bill at least this time.
inline constexpr Duration kLifetimeLeast = seconds(60);
/// Relative rounding error of sums of prices, for their comparison with a budget.
inline constexpr double kPriceRounding = 1e-9;

class OfferCatalog {
 public:
  OfferCatalog(std::vector<OfferTerms> terms, BackoffOptions backoff);

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] const OfferTerms& terms(std::size_t offer) const;
  [[nodiscard]] std::optional<std::size_t> find(const Offer& offer) const;

  /// The offers that may be requested now, lowest price per speed first; equal ones in the order of
  /// the list. Offers that just lost many servers, or whose last server never had a worker in the
  /// job, come last.
  [[nodiscard]] std::vector<std::size_t> ranking(Instant now) const;
  /// Whether there is a composition, which sets the number of servers of each offer.
  [[nodiscard]] bool has_composition() const;
  /// How many of `servers` servers the composition wants of each offer: its own numbers if they add
  /// up to `servers`, otherwise in proportion, largest remainders first; never above an offer's
  /// limit. All 0 without a composition.
  [[nodiscard]] std::vector<std::uint32_t> wanted_of(std::uint32_t servers) const;
  /// The hourly price of a unit of speed, with measured speeds where available.
  [[nodiscard]] double price_per_speed(std::size_t offer) const;
  /// The speed of a worker of this offer, measured if possible; none: of stated speed 1.
  [[nodiscard]] double speed(std::optional<std::size_t> offer) const;
  [[nodiscard]] bool is_measured(std::size_t offer) const;
  /// The next time after `now` at which ranking() contains more offers without any further event.
  [[nodiscard]] std::optional<Instant> next_change(Instant now) const;
  /// The time at which an offer will have had no refusal, and no burst of losses, for the given
  /// duration, if none happens until then. Nothing while the offer is stopped or at its quota, or
  /// if its last server never had a worker in the job.
  [[nodiscard]] std::optional<Instant> calm_from(std::size_t offer, Duration calm) const;
  /// Whether no offer can be requested again until an operator acts or a quota is freed.
  [[nodiscard]] bool all_stopped() const;
  /// Whether every offer for workers is stopped, by failed starts or wrong settings.
  [[nodiscard]] bool no_worker_offer_left() const;

  /// A worker of this offer computes: earlier failures no longer count.
  void worked(std::size_t offer);
  /// No capacity. If the provider named zones, offers of this type in these zones may be requested
  /// at once, unless they have refused within the last minute, and those in other zones wait as
  /// well. Returns the end of this offer's waiting time.
  Instant out_of_stock(std::size_t offer, Instant now, const ProviderError& error);
  /// A granted server ended, or was given up, before it had a worker in the job. The third in a row
  /// stops the offer; returns true then.
  [[nodiscard]] bool failed_to_start(std::size_t offer, Instant now);
  /// Whether two offers draw on the same quota: those of a machine type on a market.
  [[nodiscard]] bool share_quota(std::size_t a, std::size_t b) const;
  /// The quota did not suffice for `count` servers at once, more than one. Until forgive(), half as
  /// many are requested at once.
  void quota_refused(std::size_t offer, std::uint32_t count);
  /// Servers that may be requested at once.
  [[nodiscard]] std::uint32_t most_at_once(std::size_t offer) const;
  /// The quota is reached: this machine type is not requested on this market until quota_freed().
  /// False if that was already known.
  [[nodiscard]] bool quota_reached(std::size_t offer);
  /// A server of this offer has ended: its quota may be used again.
  void quota_freed(std::size_t offer);
  /// Stops the offer until forgive().
  void stop(std::size_t offer);
  /// Ranks the offer last until `until`, because many of its servers were taken at once.
  void shun(std::size_t offer, Instant until);
  /// An operator wants another attempt: no offer is stopped, waits or is at its quota any more.
  void forgive();
  /// The provider's present price for servers of this offer.
  void priced(std::size_t offer, double price_per_hour);
  /// A worker's speed, in any unit that is the same for all calls; above 0.
  void measured(std::size_t offer, double speed);

 private:
  struct Entry {
    OfferTerms terms;
    Instant blocked_until{};
    Instant shunned_until{};
    Instant refused_at{};  // time of the last refusal; 0 = never
    Duration backoff{};    // after the last refusal; 0 = none since a worker worked
    int failed_starts = 0;
    std::uint32_t most_at_once = std::numeric_limits<std::uint32_t>::max();
    bool at_quota = false;
    bool stopped = false;
    double measured_speed = 0;  // 0 = not yet
  };

  [[nodiscard]] bool same_pool(const Entry& a, const Entry& b) const;
  [[nodiscard]] static bool is_doubtful(const Entry& entry, Instant now);
  [[nodiscard]] double measured_per_stated_speed() const;
  void block(Entry& entry, Instant now, Duration at_least);

  std::vector<Entry> entries_;
  BackoffOptions backoff_;
};

}  // namespace mayfly::cloud_hooks
