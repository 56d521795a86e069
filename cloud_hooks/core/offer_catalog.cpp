#include "cloud_hooks/core/offer_catalog.hpp"

#include <algorithm>
#include <numeric>

#include "base/check.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr int kFailedStartsMax = 3;
constexpr double kNewSpeedWeight = 0.2;  // averages, as single workers may be slow for a while
/// A zone that has refused is not requested sooner because another zone's refusal names it, for
/// this time: two zones that name each other would be requested in turn without any waiting time.
constexpr Duration kRefusalCountsFor = seconds(60);

}  // namespace

OfferCatalog::OfferCatalog(std::vector<OfferTerms> terms, BackoffOptions backoff)
    : backoff_(backoff) {
  ENSURE(backoff.first > Duration(0) && backoff.max >= backoff.first, "a back-off that grows");
  for (OfferTerms& one : terms) {
    ENSURE(one.price_per_hour >= 0 && one.speed > 0, "terms are checked where they are read");
    entries_.emplace_back().terms = std::move(one);
  }
}

const OfferTerms& OfferCatalog::terms(std::size_t offer) const {
  return entries_.at(offer).terms;
}

namespace {

/// Whether a server that is listed as `seen` may belong to `offer`, apart from its machine type. If
/// the offer has no zone, the cloud has chosen one; in place of a subnet it lists the subnet's
/// zone.
bool may_be_of(const Offer& seen, const Offer& offer) {
  const bool is_in_zone =
      offer.zone == seen.zone || offer.zone.empty() || offer.zone.starts_with("subnet-");
  return offer.market == seen.market && is_in_zone;
}

}  // namespace

std::optional<std::size_t> OfferCatalog::find(const Offer& offer) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].terms.offer == offer) {
      return i;
    }
  }
  // A cloud lists the accelerators of a machine type even if the offer does not name them.
  for (const std::string& type :
       {offer.machine_type, offer.machine_type.substr(0, offer.machine_type.find('+')),
        std::string()}) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].terms.offer.machine_type == type &&
          may_be_of(offer, entries_[i].terms.offer)) {
        return i;
      }
    }
  }
  return std::nullopt;
}

bool OfferCatalog::has_composition() const {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.terms.wanted > 0; });
}

std::vector<std::uint32_t> OfferCatalog::wanted_of(std::uint32_t servers) const {
  std::vector<std::uint32_t> counts(entries_.size(), 0);
  std::uint64_t sum = 0;
  for (const Entry& entry : entries_) {
    sum += entry.terms.wanted;
  }
  if (sum == 0) {
    return counts;
  }
  std::uint32_t left = servers;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    counts[i] = static_cast<std::uint32_t>(entries_[i].terms.wanted * std::uint64_t{servers} / sum);
    left -= counts[i];
  }
  std::vector<std::size_t> order(entries_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::size_t i) {
    return entries_[i].terms.wanted * std::uint64_t{servers} % sum;
  });
  for (std::size_t i = 0; i < left; ++i) {
    ++counts[order[i]];
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::uint32_t most = entries_[i].terms.workers_most;
    counts[i] = most == 0 ? counts[i] : std::min(counts[i], most);
  }
  return counts;
}

double OfferCatalog::measured_per_stated_speed() const {
  double sum = 0;
  int count = 0;
  for (const Entry& entry : entries_) {
    if (entry.measured_speed > 0) {
      sum += entry.measured_speed / entry.terms.speed;
      ++count;
    }
  }
  return count == 0 ? 1 : sum / count;
}

double OfferCatalog::speed(std::optional<std::size_t> offer) const {
  // Configured speeds have a unit of their own; offers with a measured speed give the conversion.
  if (!offer) {
    return measured_per_stated_speed();
  }
  const Entry& entry = entries_.at(*offer);
  return entry.measured_speed > 0 ? entry.measured_speed
                                  : entry.terms.speed * measured_per_stated_speed();
}

bool OfferCatalog::is_measured(std::size_t offer) const {
  return entries_.at(offer).measured_speed > 0;
}

double OfferCatalog::price_per_speed(std::size_t offer) const {
  return entries_.at(offer).terms.price_per_hour / speed(offer);
}

bool OfferCatalog::is_doubtful(const Entry& entry, Instant now) {
  return entry.shunned_until > now || entry.failed_starts > 0;
}

std::vector<std::size_t> OfferCatalog::ranking(Instant now) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!entry.stopped && !entry.at_quota && entry.blocked_until <= now) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool a_waits = is_doubtful(entries_[a], now);
    const bool b_waits = is_doubtful(entries_[b], now);
    return a_waits != b_waits ? b_waits : price_per_speed(a) < price_per_speed(b);
  });
  return order;
}

std::optional<Instant> OfferCatalog::next_change(Instant now) const {
  std::optional<Instant> next;
  for (const Entry& entry : entries_) {
    if (!entry.stopped && !entry.at_quota && entry.blocked_until > now) {
      next = next ? std::min(*next, entry.blocked_until) : entry.blocked_until;
    }
  }
  return next;
}

std::optional<Instant> OfferCatalog::calm_from(std::size_t offer, Duration calm) const {
  const Entry& entry = entries_.at(offer);
  if (entry.stopped || entry.at_quota || entry.failed_starts > 0) {
    return std::nullopt;
  }
  const Instant refused = entry.refused_at == Instant{} ? Instant{} : entry.refused_at + calm;
  return std::max({refused, entry.blocked_until, entry.shunned_until});
}

bool OfferCatalog::all_stopped() const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.stopped || entry.at_quota; });
}

bool OfferCatalog::no_worker_offer_left() const {
  return std::ranges::all_of(
      entries_, [](const Entry& entry) { return entry.terms.for_evaluator || entry.stopped; });
}

void OfferCatalog::worked(std::size_t offer) {
  Entry& entry = entries_.at(offer);
  entry.backoff = Duration(0);
  entry.failed_starts = 0;
}

void OfferCatalog::block(Entry& entry, Instant now, Duration at_least) {
  entry.refused_at = now;
  entry.backoff = std::clamp(2 * entry.backoff, backoff_.first, backoff_.max);
  entry.blocked_until = std::max(
      entry.blocked_until, now + std::max(entry.backoff, std::min(at_least, 10 * backoff_.max)));
}

bool OfferCatalog::same_pool(const Entry& a, const Entry& b) const {
  return a.terms.offer.machine_type == b.terms.offer.machine_type &&
         a.terms.offer.market == b.terms.offer.market;
}

Instant OfferCatalog::out_of_stock(std::size_t offer, Instant now, const ProviderError& error) {
  Entry& asked = entries_.at(offer);
  block(asked, now, error.retry_after.value_or(Duration(0)));
  const std::vector<std::string>& zones = error.zones_available;
  if (zones.empty()) {
    return asked.blocked_until;
  }
  for (Entry& other : entries_) {
    if (&other == &asked || !same_pool(other, asked) || other.terms.offer.zone.empty()) {
      continue;
    }
    if (std::find(zones.begin(), zones.end(), other.terms.offer.zone) != zones.end()) {
      const bool has_just_refused =
          other.refused_at != Instant{} && now < other.refused_at + kRefusalCountsFor;
      other.blocked_until = has_just_refused ? other.blocked_until : now;
    } else {
      other.blocked_until = std::max(other.blocked_until, now + backoff_.first);
    }
  }
  return asked.blocked_until;
}

bool OfferCatalog::failed_to_start(std::size_t offer, Instant now) {
  Entry& entry = entries_.at(offer);
  block(entry, now, Duration(0));
  const bool was_stopped = entry.stopped;
  entry.stopped = entry.stopped || ++entry.failed_starts >= kFailedStartsMax;
  return entry.stopped && !was_stopped;
}

bool OfferCatalog::share_quota(std::size_t a, std::size_t b) const {
  return same_pool(entries_.at(a), entries_.at(b));
}

void OfferCatalog::quota_refused(std::size_t offer, std::uint32_t count) {
  ENSURE(count > 1, "fewer than one server cannot be requested");
  for (Entry& entry : entries_) {
    if (same_pool(entry, entries_.at(offer))) {
      entry.most_at_once = std::min(entry.most_at_once, count / 2);
    }
  }
}

std::uint32_t OfferCatalog::most_at_once(std::size_t offer) const {
  return entries_.at(offer).most_at_once;
}

bool OfferCatalog::quota_reached(std::size_t offer) {
  const bool is_news = !entries_.at(offer).at_quota;
  for (Entry& entry : entries_) {
    entry.at_quota = entry.at_quota || same_pool(entry, entries_.at(offer));
  }
  return is_news;
}

void OfferCatalog::quota_freed(std::size_t offer) {
  for (Entry& entry : entries_) {
    entry.at_quota = entry.at_quota && !same_pool(entry, entries_.at(offer));
  }
}

void OfferCatalog::stop(std::size_t offer) {
  entries_.at(offer).stopped = true;
}

void OfferCatalog::shun(std::size_t offer, Instant until) {
  entries_.at(offer).shunned_until = until;
}

void OfferCatalog::forgive() {
  for (Entry& entry : entries_) {
    entry.blocked_until = Instant{};
    entry.backoff = Duration(0);
    entry.failed_starts = 0;
    entry.most_at_once = Entry{}.most_at_once;
    entry.at_quota = false;
    entry.stopped = false;
  }
}

void OfferCatalog::priced(std::size_t offer, double price_per_hour) {
  entries_.at(offer).terms.price_per_hour = price_per_hour;
}

void OfferCatalog::measured(std::size_t offer, double speed) {
  ENSURE(speed > 0, "a measured speed is above 0");
  for (Entry& entry : entries_) {  // the machine is the same in every zone and on either market
    if (entry.terms.offer.machine_type == entries_.at(offer).terms.offer.machine_type) {
      double& known = entry.measured_speed;
      known = known > 0 ? known + kNewSpeedWeight * (speed - known) : speed;
    }
  }
}

}  // namespace mayfly::cloud_hooks
