#include "planner/models/lifetime.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.hpp"
#include "base/statistics.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "planner/fit.hpp"

namespace mayfly::planner {
namespace {

constexpr const char* kRevoked = "revoked";
constexpr const char* kCap = "cap";
constexpr double kLeastShape = 0.5;
constexpr double kMostShape = 50;
constexpr int kDraws = 1000;
constexpr std::size_t kHoursMost = 24 * 60;
constexpr double kHourShape = 6;     // of the gamma prior of the hours of a day around 1
constexpr double kHourKernel = 2.0;  // hours over which the clock is smoothed

/// How much counts with these expectations vary beyond a Poisson distribution, as the shape of a
/// gamma factor.
double shape_of(const Numbers& counts, const Numbers& expected) {
  double beyond = 0;
  double squares = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    beyond += (counts[i] - expected[i]) * (counts[i] - expected[i]) - expected[i];
    squares += expected[i] * expected[i];
  }
  return beyond <= 0 ? kMostShape : std::clamp(squares / beyond, kLeastShape, kMostShape);
}

void grow(Exposure& exposure, std::size_t hours) {
  exposure.revoked.resize(std::max(exposure.revoked.size(), hours), 0);
  exposure.server_hours.resize(std::max(exposure.server_hours.size(), hours), 0);
}

/// Adds one server's life to the exposure; with `is_revoked` its end counts as a loss.
void add_life(Exposure& exposure, double hours, bool is_revoked) {
  const auto whole = std::min(static_cast<std::size_t>(hours), kHoursMost - 1);
  grow(exposure, whole + 1);
  for (std::size_t h = 0; h < whole; ++h) {
    exposure.server_hours[h] += 1;
  }
  exposure.server_hours[whole] += hours - static_cast<double>(whole);
  exposure.revoked[whole] += is_revoked ? 1 : 0;
}

}  // namespace

std::string region_of(const std::string& zone) {
  const std::size_t end = zone.size();
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (end > 3 && zone[end - 3] == '-' && is_digit(zone[end - 2]) && !is_digit(zone[end - 1])) {
    return zone.substr(0, end - 1);
  }
  return end > 2 && zone[end - 2] == '-' ? zone.substr(0, end - 2) : zone;
}

Lifetimes::Lifetimes(const Calibration& calibration) {
  add_hours(calibration);
  add_servers(calibration);
  measure_pool();
  measure_hours_of_day(calibration);
  bursts_ = measure_bursts(calibration.lifetime_servers, pool_);
}

void Lifetimes::add_hours(const Calibration& calibration) {
  std::map<Key, std::vector<LifetimeByHourRow>> tables;
  for (const LifetimeByHourRow& row : calibration.lifetimes_by_hour) {
    tables[{row.gpu, row.region}].push_back(row);
  }
  for (auto& [key, rows] : tables) {
    std::sort(rows.begin(), rows.end(),
              [](const auto& a, const auto& b) { return a.hours < b.hours; });
    Exposure& exposure = groups_[key];
    double hour = 0;
    double revoked = 0;
    for (const LifetimeByHourRow& row : rows) {
      const double lost = std::max(row.revoked_by_then - revoked, 0.0);
      const auto last = std::min(static_cast<std::size_t>(std::ceil(row.hours)), kHoursMost);
      grow(exposure, last);
      const double span = row.hours - hour;
      for (auto h = static_cast<std::size_t>(hour); h < last && span > 0; ++h) {
        const double part = std::min(static_cast<double>(h) + 1, row.hours) -
                            std::max(static_cast<double>(h), hour);
        // At equal hazard within the span: -log(1 - lost / alive) = lost / (alive - lost / 2).
        const double alive = row.servers - revoked;
        const double rate = alive <= lost ? 1.0 : -std::log(1 - lost / alive) / lost;
        exposure.revoked[h] += lost * part / span;
        exposure.server_hours[h] += (lost > 0 ? 1 / rate : alive) * part;
      }
      hour = std::max(hour, row.hours);
      revoked += lost;
    }
    cap_h_ = std::max(cap_h_, exposure.revoked.size());
    is_capped_ = true;  // tables by hour end at the provider's cap
  }
}

void Lifetimes::add_servers(const Calibration& calibration) {
  std::map<Key, Exposure> servers;
  Numbers caps;
  for (const LifetimeServerRow& row : calibration.lifetime_servers) {
    const double hours = row.lifetime_s / kSecondsPerHour;
    add_life(servers[{row.gpu, region_of(row.zone)}], hours, row.ended_by == kRevoked);
    if (row.ended_by == kCap) {
      caps.push_back(hours);
    }
  }
  for (const ServerUptimeRow& row : calibration.server_uptimes) {
    const std::size_t type = row.cluster.find('x');
    const std::string gpu = type == std::string::npos ? row.cluster : row.cluster.substr(type + 1);
    add_life(servers[{gpu, region_of(row.zone)}], row.uptime_s / kSecondsPerHour,
             row.end == kRevoked);
  }
  if (!caps.empty()) {
    is_capped_ = true;
    cap_h_ = std::max(cap_h_, static_cast<std::size_t>(std::lround(median(caps))));
  }
  // Tables by hour come from one campaign in many regions; single servers count for other regions.
  for (auto& [key, exposure] : servers) {
    if (!groups_.contains(key)) {
      groups_[key] = std::move(exposure);
    }
  }
  for (const auto& [key, exposure] : groups_) {
    cap_h_ = is_capped_ ? cap_h_ : std::max(cap_h_, exposure.revoked.size());
  }
  for (auto& [key, exposure] : groups_) {
    grow(exposure, cap_h_);
  }
}

void Lifetimes::measure_pool() {
  pool_.assign(cap_h_, 0);
  Numbers counts, expected;
  double revoked_in_all = 0;
  double hours_in_all = 0;
  Numbers revoked(cap_h_, 0), hours(cap_h_, 0);
  for (const auto& [key, exposure] : groups_) {
    for (std::size_t h = 0; h < cap_h_; ++h) {
      revoked[h] += exposure.revoked[h];
      hours[h] += exposure.server_hours[h];
      revoked_in_all += exposure.revoked[h];
      hours_in_all += exposure.server_hours[h];
    }
  }
  server_hours_ = hours_in_all;
  is_any_lost_ = revoked_in_all > 0;
  const double overall = hours_in_all > 0 ? revoked_in_all / hours_in_all : 0;
  for (std::size_t h = 0; h < cap_h_; ++h) {
    // Adds a little of the overall hazard, so that no hour has a hazard of 0.
    pool_[h] = hours[h] > 0 ? (revoked[h] + 0.5 * overall) / (hours[h] + 0.5) : overall;
  }
  for (const auto& [key, exposure] : groups_) {
    for (std::size_t h = 0; h < cap_h_; ++h) {
      counts.push_back(exposure.revoked[h]);
      expected.push_back(exposure.server_hours[h] * pool_[h]);
    }
  }
  // The shape of each hour; the shape of all hours together enters with the weight of an average
  // hour.
  const double all = shape_of(counts, expected);
  const double typical = dot(expected, expected) / std::max(1.0, static_cast<double>(cap_h_));
  for (std::size_t h = 0; h < cap_h_; ++h) {
    double squares = typical;
    double beyond = typical / all;
    for (std::size_t at = h; at < counts.size(); at += cap_h_) {
      squares += expected[at] * expected[at];
      beyond += std::pow(counts[at] - expected[at], 2) - expected[at];
    }
    shapes_.push_back(beyond <= 0 ? kMostShape
                                  : std::clamp(squares / beyond, kLeastShape, kMostShape));
  }
}

const Exposure* Lifetimes::find(const std::string& gpu, const std::string& region) const {
  for (const std::string& name : {region, region_of(region)}) {
    if (const auto found = groups_.find({gpu, name}); found != groups_.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

Result<Numbers> Lifetimes::hazards(const std::string& gpu, const std::string& region) const {
  if (groups_.empty()) {
    return Error{Errc::kNotFound, "the calibration has no lifetimes of servers"};
  }
  Exposure own;
  grow(own, cap_h_);
  if (const Exposure* found = find(gpu, region)) {
    own = *found;
  } else if (region.empty()) {
    for (const auto& [key, exposure] : groups_) {
      for (std::size_t h = 0; h < cap_h_ && (gpu.empty() || key.first == gpu); ++h) {
        own.revoked[h] += exposure.revoked[h];
        own.server_hours[h] += exposure.server_hours[h];
      }
    }
  }
  Numbers hazards(cap_h_, 0);
  for (std::size_t h = 0; h < cap_h_; ++h) {
    if (pool_[h] > 0) {
      hazards[h] = (shapes_[h] + own.revoked[h]) / (shapes_[h] / pool_[h] + own.server_hours[h]);
    }
  }
  return hazards;
}

Result<LifetimeTable> Lifetimes::curve(const std::string& gpu, const std::string& region) const {
  TRY_ASSIGN(const Numbers by_hour, hazards(gpu, region));
  std::vector<LifetimeTable::Knot> knots;
  double cumulative = 0;
  for (const double hazard : by_hour) {
    cumulative += hazard;
    knots.push_back({static_cast<double>(knots.size() + 1) * kSecondsPerHour, cumulative});
  }
  const double cap_s = static_cast<double>(by_hour.size()) * kSecondsPerHour;
  return LifetimeTable(std::move(knots), is_capped_ ? cap_s : kNever);
}

std::string Lifetimes::because(const std::string& gpu, const std::string& region) const {
  const Exposure* own = find(gpu, region);
  const double hours =
      own == nullptr ? 0 : std::accumulate(own->server_hours.begin(), own->server_hours.end(), 0.0);
  return (own == nullptr ? "no server" : std::to_string(std::lround(hours)) + " server-hours") +
         " of " + gpu + " in " + (region.empty() ? "any region" : region) + "; pool of " +
         std::to_string(groups_.size()) + " types and regions";
}

/// The relative variance of the hazard of these hours together, between one region or month and the
/// pool, from the regions that were observed in these hours. Each region counts by its expected
/// losses, so that the largest ones do not decide alone; the pool's own error is included.
double Lifetimes::variance_between_regions(const Numbers& parts_of_hours) const {
  double squares = 0, losses = 0, all_expected = 0, count = 0;
  for (const auto& [key, exposure] : groups_) {
    double lost = 0, expected = 0;
    for (std::size_t h = 0; h < cap_h_; ++h) {
      lost += parts_of_hours[h] * exposure.revoked[h];
      expected += parts_of_hours[h] * exposure.server_hours[h] * pool_[h];
    }
    if (expected > 0) {
      squares += (lost - expected) * (lost - expected) / expected;
      losses += lost;
      all_expected += expected;
      count += 1;
    }
  }
  if (count < 2) {  // differences between regions have not been observed
    return 1 / kMostShape;
  }
  const double beyond = (squares * count / (count - 1) - count) / all_expected;
  // If a spread is estimated from few values, a new value is outside of it more often.
  const double wider = student_quantile(0.95, count - 1) / kHalfOf90;
  return std::clamp(beyond, 1 / kMostShape, 1 / kLeastShape) * (1 + 1 / count) * wider * wider +
         1 / std::max(losses, 1.0);
}

Result<Forecast> Lifetimes::revoked_share(const std::string& gpu, const std::string& region,
                                          double from_h, double to_h, double servers) const {
  TRY_ASSIGN(const Numbers central, hazards(gpu, region));
  const Exposure* own = find(gpu, region);
  // The cumulative hazard as a gamma distribution with the same mean and variance. Hours that were
  // observed in this region have an uncertainty of their own. For the others together, the region
  // may differ from the pool as much as the regions in which these hours were observed.
  double mean = 0, variance = 0, unseen = 0;
  Numbers unseen_parts(cap_h_, 0);
  for (std::size_t h = 0; h < cap_h_; ++h) {
    const double begin = static_cast<double>(h);
    const double part = std::clamp(to_h - begin, 0.0, 1.0) - std::clamp(from_h - begin, 0.0, 1.0);
    const double hazard = std::max(part, 0.0) * central[h];
    mean += hazard;
    if (own != nullptr && own->server_hours[h] > 0) {
      variance += hazard * hazard / (shapes_[h] + own->revoked[h]);
    } else {
      unseen += hazard;
      unseen_parts[h] = std::max(part, 0.0);
    }
  }
  if (!is_capped_ && !central.empty()) {
    const auto known = static_cast<double>(cap_h_);
    const double beyond = std::max(0.0, to_h - std::max(from_h, known)) * central.back();
    mean += beyond;
    unseen += beyond;
    unseen_parts.back() = 1;  // the hazard of the last hour continues
  }
  variance += unseen * unseen * variance_between_regions(unseen_parts);
  const Reason reason{"share", because(gpu, region)};
  if (!is_any_lost_ && to_h > from_h && server_hours_ > 0) {
    constexpr double kEventsBefore = 0.5;
    mean = kEventsBefore * (to_h - from_h) / server_hours_;
    variance = mean * mean / kEventsBefore;
  }
  if (mean <= 0) {
    return absolute_forecast(0, 0, 1, 0, 1, reason);
  }
  const auto share = [mean, shape = mean * mean / variance](double p) {
    return 1 - std::exp(-gamma_quantile(p, mean, shape));
  };
  Forecast forecast{share, 1 - std::exp(-mean), reason.unit, reason.because};
  if (servers > 0) {
    RandomStream draws(CounterRandom(1).split("chance among servers"));
    Numbers shares;
    for (int draw = 0; draw < kDraws; ++draw) {
      const double likely = share((draw + 0.5) / kDraws);
      const double chance = student_quantile(std::clamp(draws.unit(), 1e-9, 1 - 1e-9), 1e9);
      shares.push_back(
          std::clamp(likely + chance * std::sqrt(likely * (1 - likely) / servers), 0.0, 1.0));
    }
    forecast.quantile = sampled_forecast(std::move(shares), reason).quantile;
  }
  return forecast;
}

Result<Forecast> Lifetimes::lifetime(const std::string& gpu, const std::string& region,
                                     double age_h) const {
  TRY_ASSIGN(const LifetimeTable found, curve(gpu, region));
  const double age_s = age_h * kSecondsPerHour;
  if (age_s >= found.cap()) {
    return Error{Errc::kInvalidInput, "age_h is out of range: all servers end at the cap"};
  }
  return Forecast{[found, age_s](double p) { return found.sample(p, age_s) / kSecondsPerHour; },
                  found.mean(age_s) / kSecondsPerHour, "h", because(gpu, region)};
}

void Lifetimes::measure_hours_of_day(const Calibration& calibration) {
  hour_losses_.assign(24, 0);
  hour_expected_.assign(24, 0);
  for (const LifetimeServerRow& row : calibration.lifetime_servers) {
    if (!row.launch_hour_of_day) {
      continue;
    }
    const double hours = row.lifetime_s / kSecondsPerHour;
    for (std::size_t h = 0; h < cap_h_ && static_cast<double>(h) < hours; ++h) {
      const double part = std::min(hours - static_cast<double>(h), 1.0);
      const auto clock = static_cast<std::size_t>(*row.launch_hour_of_day + static_cast<double>(h));
      hour_expected_[clock % 24] += part * pool_[h];
    }
    if (row.ended_by == kRevoked) {
      hour_losses_[static_cast<std::size_t>(*row.launch_hour_of_day + hours) % 24] += 1;
    }
  }
}

Result<Forecast> Lifetimes::hour_of_day_factor(double hour) const {
  const double all_losses = std::accumulate(hour_losses_.begin(), hour_losses_.end(), 0.0);
  const double all_expected = std::accumulate(hour_expected_.begin(), hour_expected_.end(), 0.0);
  if (all_losses <= 0 || all_expected <= 0) {
    return Error{Errc::kNotFound,
                 "lifetime_servers.csv has no revocation with a launch hour, and counts without "
                 "exposure do not determine the hazard of an hour"};
  }
  double losses = 0;
  double expected = 0;
  for (int other = 0; other < 24; ++other) {
    const double apart = std::abs(std::remainder(hour - other, 24));
    const double weight = std::exp(-apart * apart / (2 * kHourKernel * kHourKernel));
    losses += weight * hour_losses_[static_cast<std::size_t>(other)];
    expected +=
        weight * hour_expected_[static_cast<std::size_t>(other)] * all_losses / all_expected;
  }
  // Losses come together: each burst is one event.
  const double per_event = std::max(1.0, 1 / (1 - 0.5 * bursts_.share_of_losses));
  const double shape = kHourShape + losses / per_event;
  const double mean = shape / (kHourShape + expected / per_event);
  return Forecast{[mean, shape](double p) { return gamma_quantile(p, mean, shape); }, mean,
                  "factor",
                  std::to_string(std::lround(all_losses)) +
                      " revocations with known launch hours, smoothed around the clock"};
}

Result<LossBursts> Lifetimes::bursts() const {
  if (bursts_.batches == 0) {
    return Error{Errc::kNotFound, "lifetime_servers.csv has no batch of two or more servers"};
  }
  return bursts_;
}

}  // namespace mayfly::planner
