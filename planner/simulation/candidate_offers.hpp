#pragma once

// The offers of a candidate. All parts of a simulated path name an offer by its place in
// Candidate::offers. Pure; any thread.

#include "planner/simulation/market.hpp"

namespace mayfly::planner {

class CandidateOffers {
 public:
  /// `market` must outlive it.
  CandidateOffers(const Market& market, const Candidate& candidate) : numbers_(candidate.offers) {
    for (const std::size_t number : numbers_) {
      models_.push_back(&market.offers.at(number));
    }
  }

  [[nodiscard]] std::size_t size() const { return models_.size(); }
  [[nodiscard]] const OfferModel& operator[](std::size_t offer) const { return *models_[offer]; }
  /// The offer's place in Market::offers, which is the same for all candidates.
  [[nodiscard]] std::size_t number(std::size_t offer) const { return numbers_[offer]; }
  [[nodiscard]] bool is_on_demand(std::size_t offer) const { return !is_spot(*models_[offer]); }

 private:
  std::vector<std::size_t> numbers_;
  std::vector<const OfferModel*> models_;
};

}  // namespace mayfly::planner
