#include "cloud_hooks/core/bill.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::cloud_hooks {

void Bill::open(const std::string& item, double price_per_hour, Instant since) {
  items_.try_emplace(item, Item{price_per_hour, since, since});
}

void Bill::reprice(const std::string& item, double price_per_hour, Instant from) {
  const auto found = items_.find(item);
  if (found == items_.end()) {
    return;
  }
  Item& known = found->second;
  const Instant begin = std::max(from, known.priced);
  known.cost_until += known.price_per_hour * to_seconds(begin - known.priced) / kSecondsPerHour;
  known.priced = begin;
  known.price_per_hour = price_per_hour;
}

void Bill::state_price(const std::string& item, double price_per_hour, Instant now) {
  if (const auto found = items_.find(item); found != items_.end()) {
    const bool is_first = !std::exchange(found->second.is_stated, true);
    reprice(item, price_per_hour, is_first ? found->second.since : now);
  }
}

double Bill::close(const std::string& item, Instant now) {
  const double last = cost(item, now);
  closed_ += last;
  items_.erase(item);
  return last;
}

double Bill::close_unseen(const std::string& item, Duration existed) {
  const auto found = items_.find(item);
  return found == items_.end() ? 0 : close(item, found->second.since + existed);
}

void Bill::drop(const std::string& item) {
  items_.erase(item);
}

double Bill::cost(const Item& item, Instant now) const {
  const Duration at_this_price = std::max(now - item.priced, item.since + least_ - item.priced);
  return item.cost_until + item.price_per_hour * to_seconds(at_this_price) / kSecondsPerHour;
}

double Bill::cost(const std::string& item, Instant now) const {
  const auto found = items_.find(item);
  return found == items_.end() ? 0 : cost(found->second, now);
}

double Bill::price_per_hour(const std::string& item) const {
  const auto found = items_.find(item);
  return found == items_.end() ? 0 : found->second.price_per_hour;
}

double Bill::spent(Instant now) const {
  double sum = closed_;
  for (const auto& [name, item] : items_) {
    sum += cost(item, now);
  }
  return sum;
}

double Bill::per_hour() const {
  double sum = 0;
  for (const auto& [name, item] : items_) {
    sum += item.price_per_hour;
  }
  return sum;
}

}  // namespace mayfly::cloud_hooks
