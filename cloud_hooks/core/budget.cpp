#include "cloud_hooks/core/budget.hpp"

#include <algorithm>
#include <cmath>

#include "cloud_hooks/core/offer_catalog.hpp"

namespace mayfly::cloud_hooks {
namespace {

double hours(Duration duration) {
  return to_seconds(duration) / kSecondsPerHour;
}

Duration from_hours(double count) {
  constexpr double kCenturyHours = 876'000;
  return Duration(
      static_cast<std::int64_t>(std::clamp(count, 0.0, kCenturyHours) * kSecondsPerHour * 1e9));
}

}  // namespace

bool Budget::must_stop(Instant now) {
  if (!options_.budget) {
    return false;
  }
  const double spent = bill_.spent(now);
  const double per_hour = bill_.per_hour();
  const bool stops = !is_stopped_ && per_hour > 0 &&
                     spent + per_hour * hours(options_.stop_margin) >= *options_.budget;
  is_stopped_ = is_stopped_ || stops;
  is_over_ = is_over_ || spent + per_hour * hours(options_.release_margin) >= *options_.budget;
  return stops;
}

std::optional<Instant> Budget::next_alarm(Instant now) const {
  const double per_hour = bill_.per_hour();
  if (!options_.budget || per_hour <= 0 || is_over_) {
    return std::nullopt;
  }
  const Duration left = from_hours((*options_.budget - bill_.spent(now)) / per_hour);
  return now + left - (is_stopped_ ? options_.release_margin : options_.stop_margin);
}

std::uint32_t Budget::affordable(Instant now, double price_per_hour, std::uint32_t wanted) const {
  if (price_per_hour <= 0) {
    return wanted;
  }
  double most = wanted;
  if (options_.budget_per_hour) {
    const double left = *options_.budget_per_hour - bill_.per_hour();
    most = std::min(most, left / price_per_hour + kPriceRounding);
  }
  if (options_.budget) {
    // A server that would have to end before it has computed anything is not requested.
    const Duration useful = options_.stop_margin + options_.billed_at_least;
    const double left = *options_.budget - bill_.spent(now) - bill_.per_hour() * hours(useful);
    most = std::min(most, left / (price_per_hour * hours(useful + options_.billed_at_least)));
  }
  return most < 1 ? 0 : static_cast<std::uint32_t>(std::floor(most));
}

Duration Budget::lifetime(Instant now, double price_per_hour) const {
  Duration lifetime = options_.lifetime_max;
  if (options_.budget && price_per_hour > 0) {
    const Duration paid_for = from_hours((*options_.budget - bill_.spent(now)) / price_per_hour);
    lifetime = lifetime == Duration(0) ? paid_for : std::min(lifetime, paid_for);
    lifetime = std::max(lifetime, kLifetimeLeast);
  }
  return std::chrono::duration_cast<seconds>(lifetime);
}

double Budget::hourly_excess() const {
  return options_.budget_per_hour
             ? bill_.per_hour() - *options_.budget_per_hour * (1 + kPriceRounding)
             : 0;
}

}  // namespace mayfly::cloud_hooks
