#include "planner/runs/replan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/statistics.hpp"
#include "cloud_hooks/core/least_missed.hpp"
#include "planner/estimate.hpp"
#include "planner/fit.hpp"
#include "planner/runs/remaining.hpp"

namespace mayfly::planner {
namespace {

using Servers = std::vector<ReplanServer>;

constexpr std::size_t kSpeedsMost = 13;   // of one composition: the newest
constexpr std::size_t kSpeedsLeast = 3;   // for a measured speed
constexpr double kMeasuredError = 0.01;   // of a measured speed, relative
constexpr double kNeighbourError = 0.05;  // of the ratio of two compositions on the same machines
constexpr double kStatedError = 0.2;      // of a speed that is only stated
constexpr int kInARow = 3;
constexpr int kRest = 10;            // comparisons, after a change
constexpr double kGainLeast = 0.02;  // of the remaining cost or time
constexpr double kNoMore = 1.02;     // of remaining time or cost: counts as equal
constexpr PlannedRange kUnknownStart = {30, 120, 300};

std::string composition_of(const Servers& servers) {
  std::vector<std::string> offers;
  for (const ReplanServer& server : servers) {
    offers.push_back(server.offer);
  }
  std::ranges::sort(offers);
  std::string text;
  for (const std::string& offer : offers) {
    text += offer + "\n";
  }
  return text;
}

double price_of(const Servers& servers) {
  return std::accumulate(
      servers.begin(), servers.end(), 0.0,
      [](double sum, const ReplanServer& one) { return sum + one.price_per_hour; });
}

std::string time_of(double seconds) {
  return seconds >= kSecondsPerHour ? fmt::format("{:.2f} h", seconds / kSecondsPerHour)
                                    : fmt::format("{:.0f} s", seconds);
}

std::string words_for(Change change, const std::string& offer) {
  switch (change) {
    case Change::kMore: return "one more " + offer;
    case Change::kFewer: return "one fewer " + offer;
    case Change::kOther: break;
  }
  return offer + " in place of another server";
}

}  // namespace

ReplanEffects Replanner::handle(Instant now, const ReplanFacts& facts) {
  ReplanEffects effects;
  if (composition_of(facts.servers) != composition_) {
    last_.reset();
    in_a_row_ = 0;
  } else if (last_comparison_ && now < *last_comparison_ + options_.every) {
    return effects;
  }
  measure(now, facts);
  if (workers_after_exchange_ || (rests_until_ && now < *rests_until_)) {
    act(now, facts, effects);
    return effects;
  }
  const std::optional<Proposal> best = facts.is_settled ? best_change(facts) : std::nullopt;
  const bool goes_on =
      best && last_ && best->change == last_->change && best->offer == last_->offer;
  in_a_row_ = best ? (goes_on ? in_a_row_ + 1 : 1) : 0;
  last_ = best;
  const std::string what =
      best ? words_for(best->change, best->offer) + "\n" + composition_ : std::string();
  if (in_a_row_ >= kInARow && (options_.acts || what != proposed_)) {
    proposed_ = what;
    effects.proposal = best;
    act(now, facts, effects);
  }
  return effects;
}

/// The speed since the last comparison, if the servers are the same since then.
void Replanner::measure(Instant now, const ReplanFacts& facts) {
  const std::string composition = composition_of(facts.servers);
  const double steps = facts.steps_done - steps_at_last_comparison_;
  if (last_comparison_ && composition == composition_ && facts.is_settled && steps > 0 &&
      now > *last_comparison_) {
    Measured& measured = measured_[composition];
    measured.servers = facts.servers;
    std::deque<double>& speeds = measured.speeds;
    speeds.push_back(steps / to_seconds(now - *last_comparison_));
    if (speeds.size() > kSpeedsMost) {
      speeds.pop_front();
    }
    if (speeds.size() >= kSpeedsLeast) {
      reference_ = facts.servers;
    }
  }
  composition_ = composition;
  steps_at_last_comparison_ = facts.steps_done;
  last_comparison_ = now;
}

/// Carries out the proposal in `effects`, or continues the last one.
void Replanner::act(Instant now, const ReplanFacts& facts, ReplanEffects& effects) {
  if (!options_.acts) {
    return;
  }
  if (workers_after_exchange_) {  // a server was added, and then another one is given up
    if (facts.wanted != *workers_after_exchange_ + 1) {
      workers_after_exchange_.reset();  // somebody else has set the target since then: it holds
    } else if (facts.is_settled || (rests_until_ && now >= *rests_until_)) {
      effects.workers = std::exchange(workers_after_exchange_, std::nullopt);
      rests_until_ = now + kRest * options_.every;
    }
    return;
  }
  if (!effects.proposal) {
    return;
  }
  const Change change = effects.proposal->change;
  if (change == Change::kOther) {
    workers_after_exchange_ = effects.workers_after = facts.wanted;
  }
  effects.workers = change == Change::kFewer ? facts.wanted - 1 : facts.wanted + 1;
  rests_until_ = now + kRest * options_.every;
  in_a_row_ = 0;
}

// --- The outlook of each composition ---

const PlannedOffer* Replanner::planned(const ReplanServer& server) const {
  return options_.plan ? options_.plan->find_offer(server.offer) : nullptr;
}

/// The speed of `servers` divided by that of `others`, without losses: from the plan if all are of
/// one machine type that it has, otherwise from the speeds of the workers and whole microbatches.
double Replanner::expected_ratio(const Servers& servers, const Servers& others) const {
  const PlannedOffer* first = planned(servers.front());
  const auto is_of_first = [&](const ReplanServer& server) {
    return first != nullptr && planned(server) != nullptr &&
           planned(server)->machine == first->machine;
  };
  if (std::ranges::all_of(servers, is_of_first) && std::ranges::all_of(others, is_of_first)) {
    const KeptPlan& plan = *options_.plan;
    return plan.speed(first->machine, static_cast<int>(servers.size())) /
           plan.speed(first->machine, static_cast<int>(others.size()));
  }
  const auto speed = [this](const Servers& list) {
    std::vector<cloud_hooks::ServerWorth> worths;
    for (const ReplanServer& server : list) {
      worths.push_back({.speed = server.speed});
    }
    return cloud_hooks::speed_together(worths, options_.microbatches);
  };
  return speed(servers) / speed(others);
}

/// The share of the servers' speed that is up on average, by the plan's lifetimes.
double Replanner::available(const Servers& servers) const {
  double all = 0;
  double up = 0;
  for (const ReplanServer& server : servers) {
    const PlannedOffer* offer = planned(server);
    all += server.speed;
    up += server.speed * (offer == nullptr ? 1 : up_share(*offer, server.age_s));
  }
  return up / all;
}

std::optional<Replanner::Speed> Replanner::measured_speed(const std::string& composition) const {
  const auto found = measured_.find(composition);
  if (found == measured_.end() || found->second.speeds.size() < kSpeedsLeast) {
    return std::nullopt;
  }
  Numbers logs;
  for (const double speed : found->second.speeds) {
    logs.push_back(std::log(speed));
  }
  const double sd = deviation_of(logs) / std::sqrt(static_cast<double>(logs.size()));
  return Speed{std::exp(median(logs)), std::max(kMeasuredError, sd)};
}

/// The error of an expected ratio, as a logarithm: the largest one among measured compositions.
double Replanner::error_of_ratios(const Speed& known) const {
  double error = kNeighbourError;
  for (const auto& [composition, measured] : measured_) {
    if (const std::optional<Speed> other = measured_speed(composition)) {
      const double expected = expected_ratio(measured.servers, reference_);
      const double found = other->steps_per_s / known.steps_per_s;
      error = std::max(error, std::abs(std::log(found / expected)));
    }
  }
  return error;
}

/// The measured speed, or else the speed of the composition that was measured last times the
/// expected ratio. `log_sd` is that of the ratio to this composition.
std::optional<Replanner::Speed> Replanner::speed_of(const Servers& servers) const {
  const std::string composition = composition_of(servers);
  const std::string reference = composition_of(reference_);
  const std::optional<Speed> known = measured_speed(reference);
  if (!known) {
    return std::nullopt;
  }
  if (composition == reference) {
    return Speed{known->steps_per_s, 0};
  }
  if (const std::optional<Speed> own = measured_speed(composition)) {
    return Speed{own->steps_per_s, std::hypot(own->log_sd, known->log_sd)};
  }
  const bool is_measured = std::ranges::all_of(servers, &ReplanServer::is_measured);
  return Speed{known->steps_per_s * expected_ratio(servers, reference_),
               std::max(error_of_ratios(*known), is_measured ? 0 : kStatedError)};
}

std::optional<Replanner::Outlook> Replanner::outlook_of(
    const ReplanFacts& facts, const Servers& servers,
    const std::optional<ReplanServer>& added) const {
  const std::optional<Speed> before = speed_of(facts.servers);
  const std::optional<Speed> after = speed_of(servers);
  const std::optional<Speed> level = measured_speed(composition_of(reference_));
  if (!before || !after || !level || !(after->steps_per_s > 0)) {
    return std::nullopt;
  }
  const double now = before->steps_per_s * available(facts.servers);
  const double then = after->steps_per_s * available(servers);
  const PlannedOffer* offer = added ? planned(*added) : nullptr;
  const PlannedRange start = !added                                        ? PlannedRange()
                             : offer != nullptr && offer->start_s.high > 0 ? offer->start_s
                                                                           : kUnknownStart;
  const double wait = std::min(start.median, facts.steps_left / now);
  Outlook outlook;
  const double rest = (facts.steps_left - wait * now) / then;
  const double price = price_of(facts.servers) + (added ? added->price_per_hour : 0);
  outlook.time_s = wait + rest;
  outlook.cost = (price * wait + price_of(servers) * rest) / kSecondsPerHour;
  double hazard_sd = 0;
  for (const ReplanServer& server : servers) {
    hazard_sd =
        std::max(hazard_sd, planned(server) != nullptr ? planned(server)->hazard_log_sd : 0);
  }
  const bool is_present = composition_of(servers) == composition_of(facts.servers);
  outlook.log_sd = is_present ? 0 : std::hypot(after->log_sd, (1 - available(servers)) * hazard_sd);
  outlook.wait_sd = (start.high - start.low) / (2 * kHalfOf90);
  outlook.log_level = level->log_sd;
  return outlook;
}

// --- Judgement of changes ---

/// The servers without the one that is missed least, whose offer is returned in `offer`.
Servers Replanner::without_least_missed(const Servers& servers, std::string& offer) const {
  std::vector<cloud_hooks::ServerWorth> worths;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const PlannedOffer* known = planned(servers[i]);
    worths.push_back({.speed = servers[i].speed,
                      .up_share = known == nullptr ? 1 : up_share(*known, servers[i].age_s),
                      .price_per_hour = servers[i].price_per_hour,
                      .order = static_cast<std::uint32_t>(i)});
  }
  Servers rest = servers;
  const std::size_t gone =
      cloud_hooks::least_missed(worths, {.count = 1, .microbatches = options_.microbatches})
          .front();
  offer = servers[gone].offer;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(gone));
  return rest;
}

std::vector<Replanner::Candidate> Replanner::candidates(const ReplanFacts& facts) const {
  std::vector<Candidate> all;
  std::string offer;
  if (facts.servers.size() > 1) {
    Servers fewer = without_least_missed(facts.servers, offer);
    all.push_back({Change::kFewer, offer, std::move(fewer), {}});
  }
  if (!facts.next || (options_.acts && facts.wanted >= options_.workers_most)) {
    return all;
  }
  Servers more = facts.servers;
  more.push_back(*facts.next);
  Servers other = without_least_missed(more, offer);
  if (offer != facts.next->offer) {
    all.push_back({Change::kOther, facts.next->offer, std::move(other), facts.next});
  }
  if (facts.wanted < options_.workers_most) {
    all.push_back({Change::kMore, facts.next->offer, std::move(more), facts.next});
  }
  return all;
}

bool Replanner::keeps_budgets(const ReplanFacts& facts, const Candidate& candidate,
                              const Outlook& outlook) const {
  const double most =
      price_of(facts.servers) + (candidate.added ? candidate.added->price_per_hour : 0);
  const double spread = kHalfOf90 * std::hypot(outlook.log_sd, outlook.log_level);
  return (!options_.budget_per_hour || most <= *options_.budget_per_hour) &&
         (!options_.budget || facts.spent + outlook.cost * std::exp(spread) <= *options_.budget);
}

/// The proposal, if the candidate is worth it.
std::optional<Proposal> Replanner::judged(const ReplanFacts& facts, const Outlook& present,
                                          const Candidate& candidate,
                                          const Outlook& outlook) const {
  const bool has_deadline = options_.plan && options_.plan->deadline_s;
  const double left_s = has_deadline ? *options_.plan->deadline_s - facts.elapsed_s : 0;
  const auto latest = [](const Outlook& one) {
    return one.time_s * std::exp(kHalfOf90 * std::hypot(one.log_sd, one.log_level));
  };
  const bool is_late = has_deadline && latest(present) > left_s;
  Proposal proposal{candidate.change, candidate.offer, {}, false, ""};
  proposal.is_time = is_late || (options_.plan && options_.plan->is_fastest);
  const bool is_in_time = is_late || (has_deadline ? latest(outlook) <= left_s
                                                   : outlook.time_s <= kNoMore * present.time_s);
  const bool is_too_dear =
      proposal.is_time && !options_.budget && !is_late && outlook.cost > kNoMore * present.cost;
  if (!is_in_time || is_too_dear || !keeps_budgets(facts, candidate, outlook)) {
    return std::nullopt;
  }
  const double of_present = proposal.is_time ? present.time_s : present.cost;
  const double of_other = proposal.is_time ? outlook.time_s : outlook.cost;
  const double per_wait =
      proposal.is_time ? 1
                       : (candidate.added ? candidate.added->price_per_hour : 0) / kSecondsPerHour;
  const double gain = of_present - of_other;
  const double half = kHalfOf90 * std::hypot(of_other * outlook.log_sd, gain * outlook.log_level,
                                             outlook.wait_sd * per_wait);
  proposal.gain = {gain - half, gain, gain + half};
  if (!(proposal.gain.low > 0) || gain < kGainLeast * of_present) {
    return std::nullopt;
  }
  const std::string saved =
      proposal.is_time ? fmt::format("ends the job {} ({} to {}) earlier", time_of(gain),
                                     time_of(proposal.gain.low), time_of(proposal.gain.high))
                       : fmt::format("saves {:.4g} ({:.4g} to {:.4g})", gain, proposal.gain.low,
                                     proposal.gain.high);
  proposal.because = fmt::format(
      "{} {}: the rest would take {} and cost {:.4g}, with the present servers {} and {:.4g}",
      words_for(candidate.change, candidate.offer), saved, time_of(outlook.time_s), outlook.cost,
      time_of(present.time_s), present.cost);
  return proposal;
}

std::optional<Proposal> Replanner::best_change(const ReplanFacts& facts) const {
  if (facts.servers.empty() || !(facts.steps_left > 0)) {
    return std::nullopt;
  }
  const std::optional<Outlook> present = outlook_of(facts, facts.servers, {});
  std::optional<Proposal> best;
  for (const Candidate& candidate : candidates(facts)) {
    const std::optional<Outlook> outlook = outlook_of(facts, candidate.servers, candidate.added);
    const std::optional<Proposal> one =
        present && outlook ? judged(facts, *present, candidate, *outlook) : std::nullopt;
    if (one && (!best || one->gain.median > best->gain.median)) {
      best = one;
    }
  }
  return best;
}

}  // namespace mayfly::planner
