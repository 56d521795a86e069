#pragma once

// Compares the job's bill with its budgets: how many servers the job can afford, how long a new one
// may live, and when the job has to stop and its servers have to be released. Pure; one thread.
// Money is in the currency of the offers' prices.

#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

class Budget {
 public:
  /// Both arguments must outlive this object.
  Budget(const ReplacementOptions& options, const Bill& bill) : options_(options), bill_(bill) {}

  /// Compares the bill with the total budget. Returns whether the job has to stop now, with a
  /// checkpoint: once, `stop_margin` before the budget's end.
  [[nodiscard]] bool must_stop(Instant now);
  /// must_stop() was true once: nothing is requested any more.
  [[nodiscard]] bool is_stopped() const { return is_stopped_; }
  /// Only `release_margin` was left: every server is released.
  [[nodiscard]] bool is_over() const { return is_over_; }
  /// The next time at which must_stop() or is_over() may change, if the bill's items stay the same.
  [[nodiscard]] std::optional<Instant> next_alarm(Instant now) const;

  /// How many of `wanted` servers with this hourly price may be requested.
  [[nodiscard]] std::uint32_t affordable(Instant now, double price_per_hour,
                                         std::uint32_t wanted) const;
  /// The lifetime for a new server, in whole seconds: short enough that even one that cannot be
  /// reached any more stays within the budget. 0 = no limit.
  [[nodiscard]] Duration lifetime(Instant now, double price_per_hour) const;
  /// By how much the hourly cost is above the hourly budget; 0 or less if that is kept, or there is
  /// none.
  [[nodiscard]] double hourly_excess() const;

 private:
  const ReplacementOptions& options_;
  const Bill& bill_;
  bool is_stopped_ = false;
  bool is_over_ = false;
};

}  // namespace mayfly::cloud_hooks
