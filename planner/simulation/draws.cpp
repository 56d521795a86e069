#include "planner/simulation/draws.hpp"

#include <cmath>
#include <numbers>

#include "base/portable_math.hpp"

namespace mayfly::planner {
namespace {

// Purposes of keys; the low 32 bits have the offer or zone.
constexpr std::uint64_t kServers = std::uint64_t{1} << 32;
constexpr std::uint64_t kRequests = std::uint64_t{2} << 32;
constexpr std::uint64_t kShocks = std::uint64_t{3} << 32;
constexpr std::uint64_t kTaken = std::uint64_t{4} << 32;

}  // namespace

double PathDraws::factor(const char* name, std::uint64_t index, double log_sd) const {
  if (log_sd <= 0) {
    return 1;
  }
  // Box and Muller, Annals of Mathematical Statistics 29 (1958), page 610.
  const CounterRandom key = key_.split(name);
  const double radius = std::sqrt(2 * portable_log(1 / (1 - key.unit(2 * index))));
  return std::exp(log_sd * radius * std::cos(2 * std::numbers::pi * key.unit(2 * index + 1)));
}

ServerFate PathDraws::server(const OfferModel& model, std::size_t offer, std::uint64_t grant,
                             double asked_s, const JobModel& job) const {
  const CounterRandom key = key_.split(kServers | offer);
  const std::uint64_t counter = 4 * grant;
  const double slow = factor("start-up", 0, job.start_up_log_sd);
  ServerFate fate;
  fate.serial = (static_cast<std::uint64_t>(offer) << 32) | grant;
  fate.runs_s = asked_s + slow * model.start_up.quantile(key.unit(counter));
  fate.joins_s = fate.runs_s + slow * model.join.quantile(key.unit(counter + 1));
  const double hazard = factor("hazard", offer, model.hazard_log_sd);
  const double u = key.unit(counter + 2);
  const double age = model.by_hour ? model.lifetime.sample_by_hour(
                                         u, 0, hazard, job.clock_s + fate.runs_s, *model.by_hour)
                                   : model.lifetime.sample(u, 0, hazard);
  fate.dies_s = fate.runs_s + age;
  return fate;
}

std::optional<double> PathDraws::stock_out(const OfferModel& model, std::size_t offer,
                                           std::uint64_t request) const {
  const CounterRandom key = key_.split(kRequests | offer);
  if (model.refused <= 0 || key.unit(2 * request) >= model.refused) {
    return std::nullopt;
  }
  return model.stock_out.quantile(key.unit(2 * request + 1));
}

ShockStream PathDraws::shocks(const ZoneModel& zone, std::size_t index) const {
  return ShockStream(zone.shocks, key_.split(kShocks | index));
}

bool PathDraws::is_taken(const Shock& shock, std::size_t zone, std::uint64_t serial) const {
  return key_.split(kTaken | zone).split(shock.number).unit(serial) < shock.share;
}

}  // namespace mayfly::planner
