#include "planner/simulation/working_set.hpp"

#include <algorithm>
#include <numeric>

#include "base/check.hpp"

namespace mayfly::planner {
namespace {

constexpr std::size_t kKnownMax = 1 << 16;  // sets of workers whose speed is kept

}  // namespace

JobModel served(const JobModel& job, const Candidate& candidate) {
  JobModel own = job;
  if (!job.servings.empty()) {
    const ParameterServing& serving = job.servings.at(candidate.serving);
    own.speed = serving.speed;
    own.speed_log_sd = serving.speed_log_sd;
    own.other_cost_per_hour += serving.cost_per_hour;
    own.servings.clear();
  }
  return own;
}

std::vector<cloud_hooks::OfferTerms> terms_of(const Market& market, const JobModel& job,
                                              const Candidate& candidate) {
  std::vector<cloud_hooks::OfferTerms> terms;
  for (std::size_t place = 0; place < candidate.offers.size(); ++place) {
    const std::size_t offer = candidate.offers[place];
    const OfferModel& model = market.offers.at(offer);
    std::vector<std::uint32_t> one(market.machines, 0);
    one.at(model.machine) = 1;
    const double speed = job.speed(one);
    ENSURE(speed > 0, "a worker works");
    terms.push_back({{std::to_string(model.machine), std::to_string(offer), model.offer.market},
                     model.price_per_hour,
                     speed});
    terms.back().wanted = candidate.composition.empty() ? 0 : candidate.composition.at(place);
    terms.back().workers_most = model.workers_most;
  }
  return terms;
}

WorkingSet::WorkingSet(const Market& market, const JobModel& job, const Candidate& candidate)
    : speed_(job.speed),
      workers_(candidate.workers),
      market_machines_(market.machines),
      most_(candidate.workers + candidate.spares + 2) {
  const std::vector<cloud_hooks::OfferTerms> terms = terms_of(market, job, candidate);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::size_t machine = market.offers[candidate.offers[i]].machine;
    const auto found = std::ranges::find(machine_id_, machine);
    machine_.push_back(static_cast<std::size_t>(found - machine_id_.begin()));
    if (found == machine_id_.end()) {
      machine_id_.push_back(machine);
    }
    one_.push_back(terms[i].speed);
  }
  fastest_.resize(machine_id_.size());
  std::iota(fastest_.begin(), fastest_.end(), 0);
  const auto speed_of = [&](std::size_t machine) {
    return one_[static_cast<std::size_t>(std::ranges::find(machine_, machine) - machine_.begin())];
  };
  std::ranges::stable_sort(fastest_, {}, speed_of);
  std::size_t sets = 1;
  for (std::size_t i = 0; i < machine_id_.size() && sets <= kKnownMax; ++i) {
    sets *= most_;
  }
  known_.assign(sets <= kKnownMax ? sets : 0, -1);
  counts_.assign(machine_id_.size(), 0);

  full_speed_ = computed(first_counts(terms, candidate));
}

/// The number of the candidate's workers on each machine if no request is refused.
std::vector<std::uint32_t> WorkingSet::first_counts(
    const std::vector<cloud_hooks::OfferTerms>& terms, const Candidate& candidate) const {
  const cloud_hooks::OfferCatalog catalog(terms, {});
  std::vector<std::uint32_t> counts(machine_id_.size(), 0);
  if (catalog.has_composition()) {
    const std::vector<std::uint32_t> wanted = catalog.wanted_of(workers_);
    for (std::size_t offer = 0; offer < wanted.size(); ++offer) {
      counts[machine_[offer]] += wanted[offer];
    }
    return counts;
  }
  std::uint32_t left = workers_;
  std::vector<std::uint32_t> room(terms.size(), 0);
  for (std::size_t offer = 0; offer < terms.size(); ++offer) {
    room[offer] = terms[offer].workers_most == 0 ? workers_ : terms[offer].workers_most;
  }
  const std::vector<std::size_t> ranking = catalog.ranking({});
  const auto take = [&](std::uint32_t most, bool any_market) {
    for (const std::size_t offer : ranking) {
      const bool fits = any_market || terms[offer].offer.market == cloud_hooks::Market::kOnDemand;
      const std::uint32_t here = fits ? std::min({most, left, room[offer]}) : 0;
      counts[machine_[offer]] += here;
      room[offer] -= here;
      left -= here;
      most -= here;
    }
  };
  take(candidate.on_demand_floor, false);
  take(workers_, true);
  return counts;
}

void WorkingSet::join(std::size_t offer) {
  ++counts_[machine_[offer]];
  ++size_;
}

void WorkingSet::leave(std::size_t offer) {
  --counts_[machine_[offer]];
  --size_;
}

void WorkingSet::clear() {
  std::ranges::fill(counts_, 0);
  size_ = 0;
}

double WorkingSet::computed(std::vector<std::uint32_t> counts) const {
  std::uint32_t total = std::accumulate(counts.begin(), counts.end(), 0U);
  for (const std::size_t machine : fastest_) {
    const std::uint32_t idle = std::min(counts[machine], total - std::min(total, workers_));
    counts[machine] -= idle;
    total -= idle;
  }
  if (total == 0) {
    return 0;
  }
  std::vector<std::uint32_t> all(market_machines_, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    all[machine_id_[i]] = counts[i];
  }
  return speed_(all);
}

double WorkingSet::speed() {
  if (known_.empty()) {
    return computed(counts_);
  }
  std::size_t key = 0;
  for (const std::uint32_t count : counts_) {
    if (count >= most_) {
      return computed(counts_);
    }
    key = key * most_ + count;
  }
  if (known_[key] < 0) {
    known_[key] = computed(counts_);
  }
  return known_[key];
}

double WorkingSet::speed_on(std::size_t offer) const {
  std::vector<std::uint32_t> counts(machine_id_.size(), 0);
  counts[machine_[offer]] = workers_;
  return computed(counts);
}

}  // namespace mayfly::planner
