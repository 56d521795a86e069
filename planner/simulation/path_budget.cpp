#include "planner/simulation/path_budget.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/time.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"

namespace mayfly::planner {
namespace {

constexpr double kAlarmLeastS = 0.001;
constexpr double kRounded = 1e-6;  // relative: far more than sums are rounded by

}  // namespace

double PathBudget::alarm_s(double before_s, double now_s) const {
  if (!job_.budget) {
    return kNever;
  }
  const PathBill::Spending most = servers_.bill().spending_at_most(now_s);
  if (most.per_hour > 0) {
    const double left = *job_.budget * (1 - kRounded) - most.spent;
    const double earliest_s =
        now_s - rules_.stop_margin_s + left / most.per_hour * kSecondsPerHour * (1 - kRounded);
    if (left > 0 && earliest_s > before_s) {
      return kNever;
    }
  }
  const auto [spent, per_hour] = servers_.bill().spending(now_s);
  return per_hour <= 0 ? kNever
                       : std::max(now_s + (*job_.budget - spent) / per_hour * kSecondsPerHour -
                                      rules_.stop_margin_s,
                                  now_s + kAlarmLeastS);
}

bool PathBudget::is_used_up(double now_s) const {
  if (!job_.budget) {
    return false;
  }
  const PathBill::Spending most = servers_.bill().spending_at_most(now_s);
  if (most.spent + most.per_hour * rules_.stop_margin_s / kSecondsPerHour <
      *job_.budget * (1 - kRounded)) {
    return false;
  }
  const auto [spent, per_hour] = servers_.bill().spending(now_s);
  return per_hour > 0 && spent + per_hour * rules_.stop_margin_s / kSecondsPerHour >= *job_.budget;
}

/// Servers that the offer's own limit still allows.
std::uint32_t PathBudget::room(std::size_t offer, std::span<const OpenRequest> open) const {
  const std::uint32_t most = offers_[offer].workers_most;
  if (most == 0) {
    return std::numeric_limits<std::uint32_t>::max();
  }
  std::uint32_t here = servers_.present(offer);
  for (const OpenRequest& one : open) {
    here += one.offer == offer ? one.count : 0;
  }
  return most - std::min(most, here);
}

std::uint32_t PathBudget::affordable(std::size_t offer, std::uint32_t wanted,
                                     std::span<const OpenRequest> open, double now_s) const {
  const double price = offers_[offer].price_per_hour;
  std::uint32_t allowed = std::min(wanted, room(offer, open));
  if (allowed == 0 || price <= 0 || (!job_.budget && !job_.budget_per_hour)) {
    return allowed;
  }
  const PathBill& bill = servers_.bill();
  const auto [spent, per_hour] = bill.spending(now_s);
  if (job_.budget_per_hour) {
    double left = *job_.budget_per_hour - per_hour;
    for (const OpenRequest& one : open) {
      left -= one.count * offers_[one.offer].price_per_hour;
    }
    allowed = static_cast<std::uint32_t>(
        std::clamp(left / price + cloud_hooks::kPriceRounding, 0.0, static_cast<double>(allowed)));
  }
  if (!job_.budget) {
    return allowed;
  }
  // A server that would have to end before it has computed anything is not requested.
  const double useful_s = rules_.stop_margin_s + job_.billing.least_s;
  double left = *job_.budget - spent - per_hour * useful_s / kSecondsPerHour;
  for (const OpenRequest& one : open) {
    const double open_price = offers_[one.offer].price_per_hour;
    left -= one.count * (bill.at_once(open_price) + open_price * useful_s / kSecondsPerHour);
  }
  const double most = left / (price * (useful_s + job_.billing.least_s) / kSecondsPerHour);
  return static_cast<std::uint32_t>(
      std::floor(std::clamp(most, 0.0, static_cast<double>(allowed))));
}

double PathBudget::lifetime_s(std::size_t offer, std::span<const OpenRequest> open,
                              double now_s) const {
  const double price = offers_[offer].price_per_hour;
  if (!job_.budget || price <= 0) {
    return job_.server_lifetime_s;
  }
  const PathBill& bill = servers_.bill();
  double left = *job_.budget - bill.spending(now_s).spent;
  for (const OpenRequest& one : open) {
    left -= one.count * bill.at_once(offers_[one.offer].price_per_hour);
  }
  const double paid_for_s = left / price * kSecondsPerHour;
  const double shortest_s =
      job_.server_lifetime_s > 0 ? std::min(job_.server_lifetime_s, paid_for_s) : paid_for_s;
  return std::floor(std::max(shortest_s, to_seconds(cloud_hooks::kLifetimeLeast)));
}

}  // namespace mayfly::planner
