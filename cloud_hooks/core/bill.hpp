#pragma once

// What the job's servers have cost and cost now, from the times for which they are known to exist,
// or might exist for all we know. Pure. Money is in the currency of the offers' prices.

#include <map>
#include <string>

#include "base/time.hpp"

namespace mayfly::cloud_hooks {

class Bill {
 public:
  /// `least` is what a server is billed for at least, however short it lived.
  explicit Bill(double spent_before, Duration least) : closed_(spent_before), least_(least) {}

  /// Something bills from `since` on. An item that is open already only gets the earlier beginning
  /// and the new price.
  void open(const std::string& item, double price_per_hour, Instant since);
  /// It bills no longer; returns what it cost in all. 0 for one that is not open.
  double close(const std::string& item, Instant now);
  /// It may have existed, unseen, for so long at most: that much is charged, or what is billed at
  /// least, and returned. 0 for one that is not open.
  double close_unseen(const std::string& item, Duration existed);
  /// It never existed, or goes on under another name.
  void drop(const std::string& item);

  /// Of everything, until now.
  [[nodiscard]] double spent(Instant now) const;
  /// Of one open item, until now; 0 for one that is not open.
  [[nodiscard]] double cost(const std::string& item, Instant now) const;
  /// What everything open costs in an hour.
  [[nodiscard]] double per_hour() const;

 private:
  struct Item {
    double price_per_hour = 0;
    Instant since;
  };
  [[nodiscard]] double cost(const Item& item, Instant now) const;

  std::map<std::string, Item> items_;
  double closed_ = 0;
  Duration least_;
};

}  // namespace mayfly::cloud_hooks
