#include "planner/distributions.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/portable_math.hpp"
#include "base/time.hpp"

namespace mayfly::planner {
namespace {

constexpr double kSurvivalLeast = 1e-9;
constexpr double kSecondsPerDay = 24 * kSecondsPerHour;

/// The cumulative hazard at which a server with this draw ends.
double hazard_of_draw(double u) {
  return portable_log(1 / (1 - u));
}

}  // namespace

QuantileTable::QuantileTable(std::vector<double> values) : values_(std::move(values)) {
  ENSURE(!values_.empty() && std::ranges::is_sorted(values_), "quantiles are ascending");
  ENSURE(values_.front() >= 0 && std::isfinite(values_.back()), "times are finite");
}

QuantileTable QuantileTable::of_samples(std::vector<double> samples) {
  std::ranges::sort(samples);
  return QuantileTable(std::move(samples));
}

double QuantileTable::quantile(double u) const {
  const double place = u * static_cast<double>(values_.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(place), values_.size() - 1);
  const std::size_t above = std::min(below + 1, values_.size() - 1);
  return values_[below] + (place - static_cast<double>(below)) * (values_[above] - values_[below]);
}

double QuantileTable::mean() const {
  if (values_.size() == 1) {
    return values_.front();
  }
  double sum = -(values_.front() + values_.back()) / 2;
  for (const double value : values_) {
    sum += value;
  }
  return sum / static_cast<double>(values_.size() - 1);
}

QuantileTable QuantileTable::scaled(double factor) const {
  std::vector<double> values = values_;
  for (double& value : values) {
    value *= factor;
  }
  return QuantileTable(std::move(values));
}

LifetimeTable::LifetimeTable(std::vector<Knot> knots, double cap_s)
    : knots_(std::move(knots)), cap_s_(cap_s) {
  Knot before;
  for (const Knot& knot : knots_) {
    ENSURE(knot.age_s > before.age_s && knot.hazard >= before.hazard, "knots are ascending");
    before = knot;
  }
  ENSURE(cap_s > 0, "a server lives for some time");
}

LifetimeTable LifetimeTable::exponential(double mean_s) {
  ENSURE(mean_s > 0, "a mean lifetime is above 0");
  return std::isfinite(mean_s) ? LifetimeTable({{mean_s, 1}}) : LifetimeTable();
}

LifetimeTable LifetimeTable::of_survival(std::span<const double> ages_s,
                                         std::span<const double> survival, double cap_s) {
  ENSURE(ages_s.size() == survival.size(), "a share for each age");
  std::vector<Knot> knots;
  Knot before;
  for (std::size_t i = 0; i < ages_s.size() && before.age_s < cap_s; ++i) {
    if (ages_s[i] <= 0) {
      continue;
    }
    const double share = std::clamp(survival[i], kSurvivalLeast, 1.0);
    Knot knot{ages_s[i], std::max(before.hazard, portable_log(1 / share))};
    if (knot.age_s > cap_s) {  // only the hazard up to the cap counts
      const double part = (cap_s - before.age_s) / (knot.age_s - before.age_s);
      knot = {cap_s, before.hazard + part * (knot.hazard - before.hazard)};
    }
    knots.push_back(knot);
    before = knot;
  }
  return LifetimeTable(std::move(knots), cap_s);
}

double LifetimeTable::last_rate() const {
  if (knots_.empty()) {
    return 0;
  }
  const Knot& last = knots_.back();
  const Knot before = knots_.size() > 1 ? knots_[knots_.size() - 2] : Knot{};
  return (last.hazard - before.hazard) / (last.age_s - before.age_s);
}

double LifetimeTable::hazard(double age_s) const {
  const auto next = std::ranges::lower_bound(knots_, age_s, {}, &Knot::age_s);
  if (next == knots_.end()) {
    return knots_.empty() ? 0 : knots_.back().hazard + last_rate() * (age_s - knots_.back().age_s);
  }
  const Knot before = next == knots_.begin() ? Knot{} : *std::prev(next);
  const double share = (age_s - before.age_s) / (next->age_s - before.age_s);
  return before.hazard + share * (next->hazard - before.hazard);
}

double LifetimeTable::survival(double age_s) const {
  return age_s >= cap_s_ ? 0 : portable_exp(-hazard(age_s));
}

/// The age at which the cumulative hazard is reached, at most the cap.
double LifetimeTable::age_at(double hazard) const {
  const auto next = std::ranges::lower_bound(knots_, hazard, {}, &Knot::hazard);
  if (next == knots_.end()) {
    const double rate = last_rate();
    const double age =
        rate > 0 ? knots_.back().age_s + (hazard - knots_.back().hazard) / rate : kNever;
    return std::min(age, cap_s_);
  }
  const Knot before = next == knots_.begin() ? Knot{} : *std::prev(next);
  const double step = next->hazard - before.hazard;
  const double share = step > 0 ? (hazard - before.hazard) / step : 1;
  return std::min(before.age_s + share * (next->age_s - before.age_s), cap_s_);
}

double LifetimeTable::mean(double age_s) const {
  // Between two knots the survival is exponential, so its integral is closed.
  const double hazard_before = hazard(age_s);
  double sum = age_s;
  Knot before{age_s, hazard_before};
  const auto add = [&](double until, double hazard) {
    const double width = until - before.age_s;
    const double step = hazard - before.hazard;
    const double survival = portable_exp(hazard_before - before.hazard);
    sum += survival * (step > 1e-12 ? width * (1 - portable_exp(-step)) / step : width);
    before = {until, hazard};
  };
  for (const Knot& knot : knots_) {
    if (knot.age_s > age_s && knot.age_s < cap_s_) {
      add(knot.age_s, knot.hazard);
    }
  }
  if (std::isfinite(cap_s_)) {
    add(cap_s_, hazard(cap_s_));
    return sum;
  }
  const double rate = last_rate();
  return rate > 0 ? sum + portable_exp(hazard_before - before.hazard) / rate : kNever;
}

double LifetimeTable::sample(double u, double age_s, double factor) const {
  if (knots_.empty() || factor <= 0) {
    return cap_s_;
  }
  const double before = age_s > 0 ? hazard(age_s) : 0;
  return std::max(age_s, age_at(before + hazard_of_draw(u) / factor));
}

double LifetimeTable::sample_by_hour(double u, double age_s, double factor, double clock_s,
                                     const HourFactors& hours) const {
  constexpr double kForEver = 1e12;  // seconds; much later the next hour is the same number
  double left = hazard_of_draw(u);
  double age = age_s;
  bool days_are_alike = false;  // from the last knot on
  while (age < std::min(cap_s_, kForEver)) {
    if (!days_are_alike && (knots_.empty() || age >= knots_.back().age_s)) {
      days_are_alike = true;
      double of_day = 0;
      for (const double hour : hours) {
        of_day += factor * hour * last_rate() * kSecondsPerHour;
      }
      if (!(of_day > 0)) {
        return cap_s_;
      }
      const double days = std::floor(left / of_day);
      age += days * kSecondsPerDay;
      left -= days * of_day;
      continue;
    }
    const double clock = clock_s + age;
    const double hour = std::floor(clock / kSecondsPerHour);
    const double next = age + ((hour + 1) * kSecondsPerHour - clock);
    const auto of_day = static_cast<std::size_t>(hour - 24 * std::floor(hour / 24));
    const double weight = factor * hours.at(of_day);
    const double step = weight * (hazard(next) - hazard(age));
    if (step > 0 && left <= step) {
      return std::max(age, age_at(hazard(age) + left / weight));
    }
    left -= step;
    age = next;
  }
  return cap_s_;
}

LifetimeTable LifetimeTable::scaled(double factor) const {
  std::vector<Knot> knots = knots_;
  for (Knot& knot : knots) {
    knot.hazard *= factor;
  }
  return LifetimeTable(std::move(knots), cap_s_);
}

}  // namespace mayfly::planner
