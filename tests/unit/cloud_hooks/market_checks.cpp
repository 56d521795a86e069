// The true state of MarketWorld, and the checks of the policy's promises with it.

#include <algorithm>

#include "tests/unit/cloud_hooks/market_world.hpp"

namespace mayfly::cloud_hooks::test_support {
namespace {

constexpr double kSecondsPerHour = 3600;

}  // namespace

std::vector<std::string> MarketWorld::alive() const {
  std::vector<std::string> ids;
  for (const auto& [id, machine] : machines_) {
    if (!machine.gone) {
      ids.push_back(id);
    }
  }
  return ids;
}

double MarketWorld::true_cost() const {
  double sum = 0;
  for (const auto& [id, machine] : machines_) {
    const Duration billed =
        std::max<Duration>(machine.gone.value_or(now_) - machine.created, options_.billed_at_least);
    sum += options_.offers[machine.offer].price_per_hour * to_seconds(billed) / kSecondsPerHour;
  }
  return sum;
}

/// The policy learns of a server's end from the next list, and bills one more server for each
/// answer that was lost. Each of these costs up to a minute.
double MarketWorld::billed_too_much_at_most() const {
  double most_per_hour = 0;
  for (const OfferTerms& offer : options_.offers) {
    most_per_hour = std::max(most_per_hour, offer.price_per_hour);
  }
  return static_cast<double>(result_.created + result_.repeats) * most_per_hour / 60;
}

double MarketWorld::true_per_hour() const {
  double sum = 0;
  for (const auto& [id, machine] : machines_) {
    sum += machine.gone ? 0 : options_.offers[machine.offer].price_per_hour;
  }
  return sum;
}

void MarketWorld::check(const char* when) {
  constexpr double kRounding = 1e-6;
  if (budget_ && true_cost() > *budget_ + kRounding) {
    violated(std::string("budget exceeded ") + when);
  }
  if (options_.budget_per_hour && true_per_hour() > *options_.budget_per_hour + kRounding) {
    violated(std::string("hourly budget exceeded ") + when);
  }
}

/// Checks that after a long calm with stock in one zone there are exactly as many servers as
/// wanted, or as the budget allows.
void MarketWorld::check_calm() {
  if (job_stopped_) {
    return;
  }
  std::uint32_t count = 0;  // servers that have a worker, or were made or lost theirs just now
  std::uint32_t young = 0;  // those of them that may still join or be released
  for (const std::string& id : alive()) {
    const Machine& machine = machines_.at(id);
    const bool is_young = now_ - machine.quiet_since < std::chrono::minutes(3);
    if (machine.member || is_young) {
      ++count;
      young +=
          is_young && (!machine.member || now_ - machine.created < std::chrono::minutes(3)) ? 1 : 0;
    } else if (!machine.releasing && !is_unnamed_) {  // an unnamed worker may run on it
      violated(id + " has had no worker for long");
    }
  }
  if (count > wanted_ + young) {
    violated(std::to_string(count) + " members, wanted " + std::to_string(wanted_));
  }
  double per_hour = true_per_hour() + options_.offers[0].price_per_hour;
  for (const auto& [id, machine] : machines_) {  // the policy learns of an end from a list
    const bool is_news = machine.gone && now_ - *machine.gone < std::chrono::minutes(1);
    per_hour += is_news ? options_.offers[machine.offer].price_per_hour : 0;
  }
  const double left = budget_ ? *budget_ - true_cost() - billed_too_much_at_most() : 1e9;
  const bool may_pay =
      (!options_.budget_per_hour || per_hour <= *options_.budget_per_hour) && left > per_hour * 0.5;
  if (count + policy_->status(now_).coming < wanted_ && may_pay) {
    violated("starved: " + std::to_string(count) + " of " + std::to_string(wanted_));
  }
}

}  // namespace mayfly::cloud_hooks::test_support
