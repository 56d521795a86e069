#include "planner/simulation/path_bill.hpp"

#include <algorithm>

#include "base/time.hpp"

namespace mayfly::planner {

void PathBill::clear() {
  open_.clear();
  closed_cost_ = closed_spent_ = 0;
  bound_ = {};
  bound_at_s_ = 0;
}

void PathBill::open(double price_per_hour, double now_s, double runs_s) {
  open_.push_back({price_per_hour, now_s, runs_s});
  add_to_bound(price_per_hour, at_once(price_per_hour), now_s);
}

void PathBill::close(std::size_t place, double now_s) {
  const Item& item = open_.at(place);
  closed_cost_ += cost_of(item, now_s);
  closed_spent_ += charge(item.price_per_hour, now_s - item.asked_s);
  add_to_bound(-item.price_per_hour, 0, now_s);
  open_[place] = open_.back();
  open_.pop_back();
}

void PathBill::add_to_bound(double more_per_hour, double at_once, double now_s) {
  bound_.spent = spending_at_most(now_s).spent + at_once;
  bound_.per_hour += more_per_hour;
  bound_at_s_ = now_s;
}

double PathBill::charge(double price_per_hour, double for_s) const {
  return price_per_hour * std::max(for_s, billing_.least_s) / kSecondsPerHour;
}

double PathBill::cost_of(const Item& item, double now_s) const {
  const double from_s = billing_.from_running ? item.runs_s : item.asked_s;
  return now_s < from_s ? 0 : charge(item.price_per_hour, now_s - from_s);
}

double PathBill::cost(double now_s) const {
  double sum = closed_cost_;
  for (const Item& item : open_) {
    sum += cost_of(item, now_s);
  }
  return sum;
}

PathBill::Spending PathBill::spending(double now_s) const {
  Spending sum{closed_spent_, 0};
  for (const Item& item : open_) {
    sum.spent += charge(item.price_per_hour, now_s - item.asked_s);
    sum.per_hour += item.price_per_hour;
  }
  return sum;
}

PathBill::Spending PathBill::spending_at_most(double now_s) const {
  return {bound_.spent + bound_.per_hour * (now_s - bound_at_s_) / kSecondsPerHour,
          bound_.per_hour};
}

}  // namespace mayfly::planner
