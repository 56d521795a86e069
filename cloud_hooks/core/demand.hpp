#pragma once

// How many servers the job wants, together and of each offer, and how many of them are missing.
// Pure; one thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cloud_hooks/core/fleet.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/open_requests.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::cloud_hooks {

class Demand {
 public:
  /// All arguments must outlive this object.
  Demand(const ReplacementOptions& options, const OfferCatalog& catalog, const Fleet& fleet,
         const OpenRequests& requests);

  /// Workers that are wanted, within 1 and max.
  [[nodiscard]] std::uint32_t target() const { return target_; }
  /// An operator sets it; it is kept within these limits.
  void set_target(std::uint32_t target);

  /// Workers, and servers for workers, that are to stay.
  [[nodiscard]] std::uint32_t staying() const { return fleet_.staying(); }
  /// staying(), and the servers that are requested for workers.
  [[nodiscard]] std::uint32_t staying_or_coming() const;
  /// Workers of the target that neither exist nor are requested.
  [[nodiscard]] std::uint32_t workers_missing() const;
  /// Servers for evaluators that neither exist nor are requested.
  [[nodiscard]] std::uint32_t evaluators_missing() const;

  /// Servers of the offer that are to stay or may still appear.
  [[nodiscard]] std::uint32_t present(std::size_t offer) const;
  /// Servers that the offer's own limit still allows.
  [[nodiscard]] std::uint32_t room(std::size_t offer) const;
  /// present() of all on-demand offers for workers together, and its least value.
  [[nodiscard]] std::uint32_t on_demand_present() const;
  [[nodiscard]] std::uint32_t on_demand_floor() const;
  /// By offer: the servers of the target that the composition wants, and those of them that are not
  /// present. All 0 without a composition.
  [[nodiscard]] std::vector<std::uint32_t> composed() const;
  [[nodiscard]] std::vector<std::uint32_t> lacking() const;

 private:
  const ReplacementOptions& options_;
  const OfferCatalog& catalog_;
  const Fleet& fleet_;
  const OpenRequests& requests_;
  std::uint32_t target_ = 1;
};

}  // namespace mayfly::cloud_hooks
