// Which candidates there are, and what they are called.

#include <algorithm>
#include <map>
#include <set>

#include "base/check.hpp"
#include "planner/search/question.hpp"

namespace mayfly::planner {
namespace {

/// All numbers up to 8, then in steps of about a fifth.
std::vector<std::uint32_t> worker_counts(const Question& question) {
  std::vector<std::uint32_t> counts;
  for (std::uint32_t n = question.workers_least; n <= question.workers_most;
       n += std::max<std::uint32_t>(1, n / 5)) {
    counts.push_back(n);
  }
  if (!counts.empty() && counts.back() != question.workers_most) {
    counts.push_back(question.workers_most);
  }
  return counts;
}

/// Lists of offers with the same content are the same, whatever their order.
std::vector<std::vector<std::size_t>> spot_sets(const Market& market, bool has_mixtures) {
  std::vector<std::vector<std::size_t>> sets;
  std::map<std::size_t, std::vector<std::size_t>> of_machine;
  std::vector<std::size_t> all;
  for (std::size_t offer = 0; offer < market.offers.size(); ++offer) {
    if (is_spot(market.offers[offer])) {
      sets.push_back({offer});
      of_machine[market.offers[offer].machine].push_back(offer);
      all.push_back(offer);
    }
  }
  if (has_mixtures) {
    for (const auto& [machine, offers] : of_machine) {
      sets.push_back(offers);
    }
    sets.push_back(all);
  }
  std::vector<std::vector<std::size_t>> unique;
  for (const std::vector<std::size_t>& set : sets) {
    if (!set.empty() && std::ranges::find(unique, set) == unique.end()) {
      unique.push_back(set);
    }
  }
  return unique;
}

void add_mixtures(const Market& market, const Candidate& spot, std::vector<Candidate>& candidates) {
  std::set<std::size_t> machines;
  for (const std::size_t offer : spot.offers) {
    machines.insert(market.offers[offer].machine);
  }
  Candidate mixed = spot;
  for (std::size_t offer = 0; offer < market.offers.size(); ++offer) {
    if (!is_spot(market.offers[offer]) && machines.contains(market.offers[offer].machine)) {
      mixed.offers.push_back(offer);
    }
  }
  if (mixed.offers.size() == spot.offers.size()) {
    return;
  }
  std::set<std::uint32_t> floors = {0, 1, spot.workers / 2};
  floors.erase(spot.workers);
  for (const std::uint32_t floor : floors) {
    mixed.on_demand_floor = floor;
    candidates.push_back(mixed);
  }
}

}  // namespace

std::vector<Candidate> candidates_of(const Market& market, const Question& question) {
  std::vector<Candidate> candidates;
  for (const std::uint32_t workers : worker_counts(question)) {
    Candidate one;
    one.workers = workers;
    one.checkpoint_every_s = question.checkpoint_every_s;
    for (std::size_t offer = 0; offer < market.offers.size(); ++offer) {
      if (!is_spot(market.offers[offer])) {
        one.offers = {offer};
        candidates.push_back(one);
      }
    }
    for (const std::vector<std::size_t>& set : spot_sets(market, question.has_mixtures)) {
      one.offers = set;
      candidates.push_back(one);
      if (question.has_mixtures) {
        add_mixtures(market, one, candidates);
      }
    }
  }
  return candidates;
}

std::string describe(const Market& market, const Candidate& candidate) {
  const auto list = [&](bool of_spot, bool zones) {
    std::vector<std::string> names;
    for (const std::size_t index : candidate.offers) {
      const OfferModel& model = market.offers[index];
      const std::string& name = zones ? model.offer.zone : model.offer.machine_type;
      if (is_spot(model) == of_spot && !name.empty() &&
          std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
      }
    }
    std::string text;
    for (const std::string& name : names) {
      text += (text.empty() ? "" : zones ? ", " : " or ") + name;
    }
    return text;
  };
  const bool has_spot = std::ranges::any_of(
      candidate.offers, [&](std::size_t offer) { return is_spot(market.offers[offer]); });
  const bool has_on_demand = std::ranges::any_of(
      candidate.offers, [&](std::size_t offer) { return !is_spot(market.offers[offer]); });
  const std::string type = list(has_spot, false);
  const std::string zone = list(has_spot, true);
  std::string text = std::to_string(candidate.workers) + " x " + (type.empty() ? "server" : type) +
                     (has_spot ? ", spot" : ", on demand") + (zone.empty() ? "" : " in " + zone);
  if (candidate.on_demand_floor > 0) {
    text += ", at least " + std::to_string(candidate.on_demand_floor) + " on demand";
  } else if (has_spot && has_on_demand) {
    text +=
        candidate.falls_back ? ", else on demand, and from the last moment" : ", else on demand";
  }
  if (candidate.spares > 0) {
    text +=
        ", " + std::to_string(candidate.spares) + (candidate.spares == 1 ? " spare" : " spares");
  }
  return text;
}

}  // namespace mayfly::planner
