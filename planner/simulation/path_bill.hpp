#pragma once

// The cost of the servers of a path, counted in two ways: as the provider bills them, and as the
// replacement policy counts (cloud_hooks/core/bill), from each request. Pure; one thread. Money is
// in the currency of the prices, times are seconds since the job's begin and never decrease.

#include <vector>

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

class PathBill {
 public:
  explicit PathBill(const Billing& billing) : billing_(billing) {}

  /// Nothing has been billed yet.
  void clear();
  /// Adds a server that was requested now and will run from `runs_s` on. It gets the next place.
  void open(double price_per_hour, double now_s, double runs_s);
  /// The server at that place is gone; the last one takes its place.
  void close(std::size_t place, double now_s);

  /// The cost of all servers until now, as the provider bills them.
  [[nodiscard]] double cost(double now_s) const;

  /// The money spent, and the hourly cost of the open servers, as the policy counts.
  struct Spending {
    double spent = 0;
    double per_hour = 0;
  };
  /// Exact; visits each open server.
  [[nodiscard]] Spending spending(double now_s) const;
  /// An upper bound of spending() in constant time, apart from rounding. `spent` may be higher,
  /// because it contains both the time and the least time of each server.
  [[nodiscard]] Spending spending_at_most(double now_s) const;
  /// The cost of a server of that price at the moment of its request.
  [[nodiscard]] double at_once(double price_per_hour) const { return charge(price_per_hour, 0); }

 private:
  struct Item {
    double price_per_hour = 0;
    double asked_s = 0;
    double runs_s = 0;
  };
  [[nodiscard]] double charge(double price_per_hour, double for_s) const;
  [[nodiscard]] double cost_of(const Item& item, double now_s) const;
  void add_to_bound(double more_per_hour, double at_once, double now_s);

  const Billing billing_;
  std::vector<Item> open_;
  double closed_cost_ = 0;
  double closed_spent_ = 0;
  Spending bound_;  // of spending_at_most() at bound_at_s_
  double bound_at_s_ = 0;
};

}  // namespace mayfly::planner
