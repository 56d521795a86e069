#pragma once

// Which servers a job wants: how many together and, of these, how many of each offer (a
// composition) or how many on demand (a floor), compared with those that are present. Each rule
// names the one of cloud_hooks/core/ReplacementPolicy that it must agree with. Pure; one thread.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cloud_hooks/core/offer_catalog.hpp"
#include "planner/simulation/path_servers.hpp"

namespace mayfly::planner {

class Demand {
 public:
  /// `catalog` has the candidate's offers. `offers` and `servers` must outlive the demand.
  Demand(const CandidateOffers& offers, const Candidate& candidate,
         const cloud_hooks::OfferCatalog& catalog, const PathServers& servers);

  /// A new path: the floor is the candidate's.
  void begin() { floor_ = candidate_floor_; }
  /// From now on all servers are wanted on demand.
  void fall_back() { floor_ = target_; }
  [[nodiscard]] bool has_fallen_back() const { return floor_ >= target_; }

  [[nodiscard]] bool has_composition() const { return has_composition_; }

  // Servers that are wanted in addition to those that are present and those that open requests may
  // bring (`coming`).
  /// For all servers: cloud_hooks::Demand::workers_missing().
  [[nodiscard]] std::uint32_t missing(std::uint32_t coming = 0) const;
  /// For one offer, by the composition: cloud_hooks::Demand::lacking().
  [[nodiscard]] std::uint32_t lacking(std::size_t offer, std::uint32_t coming = 0) const;
  /// For the servers on demand, by the floor: cloud_hooks::Demand::on_demand_floor().
  [[nodiscard]] std::uint32_t lacking_on_demand(std::uint32_t coming = 0) const;

  /// Whether servers of that offer are only substitutes for others:
  /// cloud_hooks::Exchange::may_give_way(), find().
  [[nodiscard]] bool may_give_way(std::size_t offer) const;

 private:
  [[nodiscard]] std::uint32_t floor() const { return std::min(floor_, target_); }

  const CandidateOffers& offers_;
  const PathServers& servers_;
  const std::uint32_t target_;
  const std::uint32_t candidate_floor_;
  const bool has_composition_;
  const std::vector<std::uint32_t> wanted_;  // by offer: servers that the composition wants
  std::uint32_t floor_;
};

}  // namespace mayfly::planner
