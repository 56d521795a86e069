#pragma once

// What may be asked for, in which order, and what may not be asked for just now. Pure.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

/// An offer with what it costs and what it gives.
struct OfferTerms {
  Offer offer;
  double price_per_hour = 0;  ///< of one server, in the budget's currency; not negative
  double speed = 1;           ///< of one worker there, relative to the other offers'; above 0
};

struct BackoffOptions {
  Duration first = seconds(5);
  Duration max = seconds(300);
};

class OfferCatalog {
 public:
  OfferCatalog(std::vector<OfferTerms> terms, BackoffOptions backoff);

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] const OfferTerms& terms(std::size_t offer) const;
  [[nodiscard]] std::optional<std::size_t> find(const Offer& offer) const;

  /// The offers that may be asked for now, lowest price per speed first; equal ones in the order of
  /// the list; those that just lost many servers, or whose last server never had a worker in the
  /// job, behind all others.
  [[nodiscard]] std::vector<std::size_t> ranking(Instant now) const;
  /// What a unit of speed costs per hour, with measured speeds where there are some.
  [[nodiscard]] double price_per_speed(std::size_t offer) const;
  /// The next moment after `now` at which ranking() has more to offer without further news.
  [[nodiscard]] std::optional<Instant> next_change(Instant now) const;
  /// From when on an offer has refused nothing, and lost no burst of servers, for so long, if
  /// nothing happens until then. Nothing while it is stopped or at its quota, or if its last server
  /// never had a worker in the job.
  [[nodiscard]] std::optional<Instant> calm_from(std::size_t offer, Duration calm) const;
  /// Whether no offer can ever be asked for again without news from a person or of a freed quota.
  [[nodiscard]] bool all_stopped() const;

  /// A worker there does its work: whatever was wrong is over.
  void worked(std::size_t offer);
  /// None to be had. If the provider named zones, offers of this type there may be asked for at
  /// once, and those in other zones wait too. Returns until when this one waits.
  Instant out_of_stock(std::size_t offer, Instant now, const ProviderError& error);
  /// A server that was granted ended, or was given up, before it had a worker in the job. The third
  /// in a row stops the offer; returns true then.
  [[nodiscard]] bool failed_to_start(std::size_t offer, Instant now);
  /// No more of this machine type on this market until quota_freed(); false if that was known.
  [[nodiscard]] bool quota_reached(std::size_t offer);
  /// A server of this offer has ended.
  void quota_freed(std::size_t offer);
  /// Not to be asked for any more until forgive().
  void stop(std::size_t offer);
  /// Behind all others until then: many servers were taken there at once.
  void shun(std::size_t offer, Instant until);
  /// A person wants another try: nothing is stopped, waits or is at its quota.
  void forgive();
  /// A worker's speed, in any unit that is the same for all calls; above 0.
  void measured(std::size_t offer, double speed);

 private:
  struct Entry {
    OfferTerms terms;
    Instant blocked_until{};
    Instant shunned_until{};
    Instant refused_at{};  // for the last time; 0 = never
    Duration backoff{};    // of the last refusal; 0 = none since it worked
    int failed_starts = 0;
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
