#pragma once

// What the servers of a path cost: as their provider bills them, and as the replacement policy
// counts (cloud_hooks/core/bill), which is from each request. Pure; one thread. Money is in the
// currency of the prices, times are seconds since the job's begin and never decrease.

#include <vector>

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

class PathBill {
 public:
  explicit PathBill(const Billing& billing) : billing_(billing) {}

  /// Nothing has been billed yet.
  void clear();
  /// A server that was requested now, and will run from `runs_s` on. Servers are at the places in
  /// which they are opened.
  void open(double price_per_hour, double now_s, double runs_s);
  /// The server at that place is gone; the last one takes its place.
  void close(std::size_t place, double now_s);

  /// What all servers cost until now, as their provider bills them.
  [[nodiscard]] double cost(double now_s) const;

  /// What is spent, and what the open servers cost an hour, as the policy counts.
  struct Spending {
    double spent = 0;
    double per_hour = 0;
  };
  /// Takes a look at each open server.
  [[nodiscard]] Spending spending(double now_s) const;
  /// The same at a look, but for rounding; `spent` may be higher, as each server is billed for its
  /// time and for the least time.
  [[nodiscard]] Spending spending_at_most(double now_s) const;
  /// What a server of that price has cost at the moment of its request.
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
