#pragma once

// The behaviour of the market on one path: its answers to requests, the fates of the servers that
// it grants, and the shocks of its zones. Its random numbers do not depend on which code decides on
// the requests: simulation/path or, in simulation/policy_path, the replacement policy itself.
// Offers are those of the candidate, times are seconds since the job's begin. Pure; one thread.

#include <cstdint>
#include <vector>

#include "planner/simulation/candidate_offers.hpp"
#include "planner/simulation/draws.hpp"

namespace mayfly::planner {

class PathMarket {
 public:
  /// All three must outlive it.
  PathMarket(const Market& market, const JobModel& job, const CandidateOffers& offers);

  /// A new path.
  void begin(const PathDraws& draws);

  /// Whether a request that is sent now is refused for lack of capacity. Each call is a request.
  [[nodiscard]] bool refuses(std::size_t offer, double now_s);
  /// The fate of the next server of the offer, which is requested now.
  [[nodiscard]] ServerFate grant(std::size_t offer, double now_s);

  /// A shock and its zone, of Market::zones.
  struct ZoneShock {
    Shock shock;
    std::size_t zone = 0;
  };
  /// When the next shock comes; kNever if there are no more.
  [[nodiscard]] double next_shock_s() const;
  /// Returns the next shock, which happens now, and advances to the one after it. Needs a next
  /// shock.
  [[nodiscard]] ZoneShock take_shock();
  /// Whether that shock, which happens now, takes a server of that offer and fate.
  [[nodiscard]] bool is_taken(const ZoneShock& by, std::size_t offer, const ServerFate& fate,
                              double now_s) const;

 private:
  /// The index into zones_ of the zone of the next shock; their number if none comes any more.
  [[nodiscard]] std::size_t next_zone() const;

  const Market& market_;
  const JobModel& job_;
  const CandidateOffers& offers_;
  std::vector<std::size_t> zones_;  // of the spot offers, those with shocks

  // State of the present path:
  PathDraws draws_{0, 0};
  std::vector<ShockStream> shocks_;      // by zones_
  std::vector<std::uint64_t> requests_;  // by offer: those that found no earlier lack of capacity
  std::vector<std::uint64_t> grants_;    // by offer
  std::vector<double> out_until_s_;      // by offer: without capacity
};

}  // namespace mayfly::planner
