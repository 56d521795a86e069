// The part of PathRunner that keeps the limits of the offers and the budgets, per hour and of the
// whole job, as cloud_hooks/core/budget does. Money is what the policy bills: from each request.

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/simulation/path.hpp"

namespace mayfly::planner {
namespace {

constexpr double kLifetimeLeastS = 60;
constexpr double kAlarmLeastS = 0.001;
constexpr double kRounded = 1e-6;  // relative: far more than sums are rounded by

}  // namespace

double PathRunner::billed(std::size_t offer, double asked_s) const {
  return offers_[offer].price_per_hour * std::max(now_s_ - asked_s, job_.billing.least_s) /
         kSecondsPerHour;
}

double PathRunner::spent() const {
  double sum = closed_bill_;
  for (const Server& server : servers_) {
    sum += billed(server.offer, server.asked_s);
  }
  return sum;
}

double PathRunner::per_hour() const {
  double sum = 0;
  for (const Server& server : servers_) {
    sum += offers_[server.offer].price_per_hour;
  }
  return sum;
}

/// From now on servers cost so much more an hour, and so much at once.
void PathRunner::bill(double more_per_hour, double at_once) {
  billed_most_ = spent_at_most() + at_once;
  billed_at_s_ = now_s_;
  billed_per_hour_ += more_per_hour;
}

/// At least spent(): each server is billed for its time and for the least time.
double PathRunner::spent_at_most() const {
  return billed_most_ + billed_per_hour_ * (now_s_ - billed_at_s_) / kSecondsPerHour;
}

/// When the job may have to be stopped, if nothing changes before; kNever if that is surely not
/// before `before_s`.
double PathRunner::budget_alarm_s(double before_s) const {
  if (job_.budget && billed_per_hour_ > 0) {
    const double left = *job_.budget * (1 - kRounded) - spent_at_most();
    const double earliest_s =
        now_s_ - rules_.stop_margin_s + left / billed_per_hour_ * kSecondsPerHour * (1 - kRounded);
    if (left > 0 && earliest_s > before_s) {
      return kNever;
    }
  }
  const double rate = job_.budget ? per_hour() : 0;
  return rate <= 0 ? kNever
                   : std::max(now_s_ + (*job_.budget - spent()) / rate * kSecondsPerHour -
                                  rules_.stop_margin_s,
                              now_s_ + kAlarmLeastS);
}

bool PathRunner::is_budget_used_up() const {
  if (job_.budget && spent_at_most() + billed_per_hour_ * rules_.stop_margin_s / kSecondsPerHour <
                         *job_.budget * (1 - kRounded)) {
    return false;
  }
  const double rate = job_.budget ? per_hour() : 0;
  return rate > 0 && spent() + rate * rules_.stop_margin_s / kSecondsPerHour >= *job_.budget;
}

/// Servers that the offer's own limit still allows.
std::uint32_t PathRunner::room(std::size_t offer, const std::vector<Refusal>& refusals) const {
  const std::uint32_t most = offers_[offer].workers_most;
  if (most == 0) {
    return std::numeric_limits<std::uint32_t>::max();
  }
  std::uint32_t here = present()[offer];
  for (const Refusal& one : refusals) {
    here += one.offer == offer ? one.count : 0;
  }
  return most - std::min(most, here);
}

/// Of so many wanted servers. Requests that will be refused count, and are on the bill, until they
/// are.
std::uint32_t PathRunner::affordable(std::size_t offer, std::uint32_t wanted,
                                     const std::vector<Refusal>& refusals) const {
  constexpr double kRounding = 1e-9;
  const double price = offers_[offer].price_per_hour;
  std::uint32_t allowed = std::min(wanted, room(offer, refusals));
  if (price > 0 && job_.budget_per_hour) {
    double left = *job_.budget_per_hour - per_hour();
    for (const Refusal& one : refusals) {
      left -= one.count * offers_[one.offer].price_per_hour;
    }
    allowed = static_cast<std::uint32_t>(
        std::clamp(left / price + kRounding, 0.0, static_cast<double>(allowed)));
  }
  if (!job_.budget || price <= 0) {
    return allowed;
  }
  const double useful_s = rules_.stop_margin_s + job_.billing.least_s;
  double left = *job_.budget - spent() - per_hour() * useful_s / kSecondsPerHour;
  for (const Refusal& one : refusals) {
    left -= one.count * (billed(one.offer, now_s_) +
                         offers_[one.offer].price_per_hour * useful_s / kSecondsPerHour);
  }
  const double most = left / (price * (useful_s + job_.billing.least_s) / kSecondsPerHour);
  return static_cast<std::uint32_t>(
      std::floor(std::clamp(most, 0.0, static_cast<double>(allowed))));
}

/// The lifetime of a new server; 0 = no limit.
double PathRunner::lifetime_of(std::size_t offer, const std::vector<Refusal>& refusals) const {
  const double price = offers_[offer].price_per_hour;
  if (!job_.budget || price <= 0) {
    return job_.server_lifetime_s;
  }
  double left = *job_.budget - spent();
  for (const Refusal& one : refusals) {
    left -= one.count * billed(one.offer, now_s_);
  }
  const double paid_for_s = left / price * kSecondsPerHour;
  const double shortest =
      job_.server_lifetime_s > 0 ? std::min(job_.server_lifetime_s, paid_for_s) : paid_for_s;
  return std::floor(std::max(shortest, kLifetimeLeastS));
}

}  // namespace mayfly::planner
