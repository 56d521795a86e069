#pragma once

// The workers of a simulated job that compute, and their speed. Pure; one thread.

#include <vector>

#include "cloud_hooks/core/offer_catalog.hpp"
#include "planner/simulation/market.hpp"

namespace mayfly::planner {

/// The offers of a candidate in the form for the replacement policy, in the candidate's order, with
/// short names: machine and zone are numbers.
[[nodiscard]] std::vector<cloud_hooks::OfferTerms> terms_of(const Market& market,
                                                            const JobModel& job,
                                                            const Candidate& candidate);

class WorkingSet {
 public:
  WorkingSet(const Market& market, const JobModel& job, const Candidate& candidate);

  /// A worker on that offer of the candidate (by its place in Candidate::offers).
  void join(std::size_t offer);
  void leave(std::size_t offer);
  void clear();
  [[nodiscard]] std::uint32_t size() const { return size_; }
  /// The speed of the workers that compute: if there are more than the candidate's, the fastest.
  [[nodiscard]] double speed();
  /// The speed of all the candidate's workers, on the offers that the policy asks first.
  [[nodiscard]] double full_speed() const { return full_speed_; }
  /// The speed of all the candidate's workers on this one offer.
  [[nodiscard]] double speed_on(std::size_t offer) const;
  /// The speed of one worker on this offer.
  [[nodiscard]] double speed_of_one(std::size_t offer) const { return one_.at(offer); }

 private:
  [[nodiscard]] std::vector<std::uint32_t> first_counts(
      const std::vector<cloud_hooks::OfferTerms>& terms, const Candidate& candidate) const;
  [[nodiscard]] double computed(std::vector<std::uint32_t> counts) const;

  ClusterSpeed speed_;
  std::uint32_t workers_;
  std::vector<std::size_t> machine_;     // of each offer, among those of the candidate
  std::vector<std::size_t> machine_id_;  // in the market
  std::vector<std::size_t> fastest_;     // machines of the candidate, slowest first
  std::vector<double> one_;              // by offer
  std::size_t market_machines_;
  double full_speed_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t most_;                 // of one machine at once, plus 1
  std::vector<std::uint32_t> counts_;  // by machine of the candidate
  std::vector<double> known_;          // speed by counts; below 0 = not yet computed
};

}  // namespace mayfly::planner
