#pragma once

// The past and present cost of the job's servers, computed from the times during which they are
// known to exist, or might exist. Pure. Money is in the currency of the offers' prices.

#include <map>
#include <string>

#include "base/time.hpp"

namespace mayfly::cloud_hooks {

class Bill {
 public:
  /// `least` is the shortest time for which a server is billed.
  explicit Bill(double spent_before, Duration least) : closed_(spent_before), least_(least) {}

  /// An item is billed from `since` on. Nothing changes if it is already open.
  void open(const std::string& item, double price_per_hour, Instant since);
  /// Sets the price of an open item from `from` on; its cost until then does not change. `from` is
  /// not earlier than in the call before.
  void reprice(const std::string& item, double price_per_hour, Instant from);
  /// The provider states the price of an open item. The first one counts from the beginning, in
  /// place of the assumed one; later ones count from now on.
  void state_price(const std::string& item, double price_per_hour, Instant now);
  /// The item is no longer billed. Returns its total cost; 0 if it was not open.
  double close(const std::string& item, Instant now);
  /// The item may have existed, without being listed, for this time at most: charges that time, or
  /// the shortest billed time, and returns the cost. 0 if it was not open.
  double close_unseen(const std::string& item, Duration existed);
  /// The item never existed, or is continued under another name; nothing is charged.
  void drop(const std::string& item);

  /// The cost of all items until now.
  [[nodiscard]] double spent(Instant now) const;
  /// The cost of one open item until now; 0 if it is not open.
  [[nodiscard]] double cost(const std::string& item, Instant now) const;
  /// The hourly cost of one open item; 0 if it is not open.
  [[nodiscard]] double price_per_hour(const std::string& item) const;
  /// The hourly cost of all open items.
  [[nodiscard]] double per_hour() const;

 private:
  struct Item {
    double price_per_hour = 0;
    Instant since;
    Instant priced{};       // the time from which its present price holds
    double cost_until = 0;  // its cost until `priced`
    bool is_stated = false;
  };
  [[nodiscard]] double cost(const Item& item, Instant now) const;

  std::map<std::string, Item> items_;
  double closed_ = 0;
  Duration least_;
};

}  // namespace mayfly::cloud_hooks
