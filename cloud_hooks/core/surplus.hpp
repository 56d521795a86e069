#pragma once

// Gives up surplus servers: more than are wanted, more than the hourly budget allows, or a number
// that an operator or the provider wants back. ServerChoice chooses them. Pure; one thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/budget.hpp"
#include "cloud_hooks/core/demand.hpp"
#include "cloud_hooks/core/effect_list.hpp"
#include "cloud_hooks/core/fleet.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/replacement_options.hpp"
#include "cloud_hooks/core/server_choice.hpp"
#include "cloud_hooks/core/shortage.hpp"

namespace mayfly::cloud_hooks {

class Surplus {
 public:
  /// All arguments must outlive this object.
  Surplus(const ReplacementOptions& options, OfferCatalog& catalog, const Bill& bill,
          const Budget& budget, const Demand& demand, Shortage& shortage, EffectList& effects,
          Fleet& fleet);

  /// An operator has changed the target. If it is smaller, keep_target() acts without patience.
  void scaled(std::uint32_t before, std::uint32_t target);
  /// Gives up servers beyond the target: after `surplus_patience`, or at once if an operator asked
  /// for fewer or if there are more than max.
  void keep_target(Instant now);
  /// Gives up servers that exceed the hourly budget. A provider may report other prices than the
  /// offers have, and an operator may have lowered the budget of a job that is continued.
  void keep_hourly_budget(Instant now);
  /// Gives up `count` servers. They are replaced like lost ones, from other offers first, because
  /// the provider has no room for servers like these. `why`: for messages.
  void give_back(Instant now, std::uint32_t count, const std::string& why);
  /// The job ends: there is no target any more.
  void end() { since_.reset(); }
  /// The next time for keep_target(); none = never.
  [[nodiscard]] std::optional<Instant> next_wake() const;

 private:
  void give_up(Instant now, const std::vector<std::string>& ids, const std::string& why);

  const ReplacementOptions& options_;
  OfferCatalog& catalog_;
  const Bill& bill_;
  const Budget& budget_;
  const Demand& demand_;
  Shortage& shortage_;
  EffectList& effects_;
  Fleet& fleet_;
  const ServerChoice choice_;
  std::optional<Instant> since_;
  bool shrinks_ = false;  // an operator asked for fewer: no patience
};

}  // namespace mayfly::cloud_hooks
