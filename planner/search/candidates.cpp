// The candidates of a market, and their descriptions.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "planner/search/question.hpp"
#include "planner/simulation/working_set.hpp"

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

/// The sets of spot offers for candidates. Lists with the same offers are one set, in any order.
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

/// Compositions of `one.workers`: spot servers of each machine type spread evenly over its zones,
/// and one, half or all but one of them of another type, each type from its cheapest offer.
void add_compositions(const Market& market, const Candidate& one,
                      std::vector<Candidate>& candidates) {
  std::map<std::size_t, std::vector<std::size_t>> of_machine;
  for (std::size_t offer = 0; offer < market.offers.size(); ++offer) {
    if (is_spot(market.offers[offer])) {
      of_machine[market.offers[offer].machine].push_back(offer);
    }
  }
  const auto add = [&](std::vector<std::size_t> offers, std::vector<std::uint32_t> counts) {
    Candidate composed = one;
    composed.offers = std::move(offers);
    composed.composition = std::move(counts);
    candidates.push_back(std::move(composed));
  };
  std::vector<std::size_t> cheapest;  // of each machine type
  for (auto& [machine, offers] : of_machine) {
    std::ranges::stable_sort(
        offers, {}, [&](std::size_t offer) { return market.offers[offer].price_per_hour; });
    cheapest.push_back(offers.front());
    const auto zones = static_cast<std::uint32_t>(offers.size());
    if (zones > 1 && one.workers >= zones) {
      std::vector<std::uint32_t> counts(zones, one.workers / zones);
      std::fill_n(counts.begin(), one.workers % zones, one.workers / zones + 1);
      add(offers, counts);
    }
  }
  for (std::size_t a = 0; a < cheapest.size(); ++a) {
    for (std::size_t b = a + 1; b < cheapest.size(); ++b) {
      for (const std::uint32_t of_a : std::set{1U, one.workers / 2, one.workers - 1}) {
        if (of_a > 0 && of_a < one.workers) {
          add({cheapest[a], cheapest[b]}, {of_a, one.workers - of_a});
        }
      }
    }
  }
}

/// "2 x a, spot in z1 + 1 x b, spot in z2".
std::string describe_composition(const Market& market, const Candidate& candidate) {
  std::string text;
  for (std::size_t place = 0; place < candidate.offers.size(); ++place) {
    Candidate part;
    part.offers = {candidate.offers[place]};
    part.workers = candidate.composition[place];
    text += part.workers == 0 ? "" : (text.empty() ? "" : " + ") + describe(market, part);
  }
  return text;
}

/// The description of the spares and of the parameter servers.
std::string rest_of(const Candidate& candidate) {
  std::string text;
  if (candidate.spares > 0) {
    text = ", " + std::to_string(candidate.spares) + (candidate.spares == 1 ? " spare" : " spares");
  }
  return text + (candidate.serving_words.empty() ? "" : ", " + candidate.serving_words);
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
    if (question.has_mixtures) {
      add_compositions(market, one, candidates);
    }
  }
  std::erase_if(candidates,
                [&](const Candidate& candidate) { return !has_room(market, question, candidate); });
  return candidates;
}

bool has_room(const Market& market, const Question& question, const Candidate& candidate) {
  std::vector<std::size_t> places(candidate.offers.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, {}, [&](std::size_t place) {
    return market.offers[candidate.offers[place]].price_per_hour;
  });
  std::vector<std::uint32_t> taken(places.size(), 0);
  std::uint32_t left = candidate.workers;
  double per_hour = 0;
  const auto take = [&](std::uint32_t most, bool any_market) {
    for (const std::size_t place : places) {
      const OfferModel& model = market.offers[candidate.offers[place]];
      const std::uint32_t all =
          candidate.composition.empty() ? candidate.workers : candidate.composition[place];
      const std::uint32_t room =
          (model.workers_most == 0 ? all : std::min(all, model.workers_most)) - taken[place];
      const std::uint32_t here = any_market || !is_spot(model) ? std::min({most, left, room}) : 0;
      taken[place] += here;
      most -= here;
      left -= here;
      per_hour += here * model.price_per_hour;
    }
  };
  take(candidate.on_demand_floor, false);
  take(candidate.workers, true);
  constexpr double kRounding = 1e-9;
  return left == 0 && per_hour <= question.budget_per_hour.value_or(kNever) * (1 + kRounding);
}

std::vector<Candidate> with_servings(const JobModel& job,
                                     const std::vector<Candidate>& candidates) {
  std::vector<Candidate> all = job.servings.empty() ? candidates : std::vector<Candidate>();
  for (std::size_t i = 0; i < job.servings.size(); ++i) {
    for (Candidate one : candidates) {
      one.serving = i;
      one.serving_words = job.servings[i].words;
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::vector<Candidate> take_unknown_speeds(const Market& market, const JobModel& job,
                                           std::vector<Candidate>& candidates) {
  const auto unknown = std::ranges::stable_partition(candidates, [&](const Candidate& candidate) {
    const double speed = WorkingSet(market, served(job, candidate), candidate).full_speed();
    return std::isfinite(speed) && speed > 0;
  });
  std::vector<Candidate> taken(unknown.begin(), unknown.end());
  candidates.erase(unknown.begin(), unknown.end());
  return taken;
}

std::string describe(const Market& market, const Candidate& candidate) {
  if (!candidate.composition.empty()) {
    return describe_composition(market, candidate) + rest_of(candidate);
  }
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
  return text + rest_of(candidate);
}

}  // namespace mayfly::planner
