#include "planner/search/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.hpp"
#include "planner/search/amounts.hpp"
#include "planner/search/scenario.hpp"
#include "planner/simulation/closed_forms.hpp"

namespace mayfly::planner {
namespace {

constexpr std::uint64_t kPaths = 800;  // of each alternative
constexpr std::size_t kRivals = 12;    // that may become the choice when something changes
constexpr double kErrorsVisible = 2;
constexpr double kOften = 60;  // seconds between checkpoints

class Adviser {
 public:
  Adviser(const Market& market, const JobModel& job, const Question& question, const Answer& answer)
      : market_(market),
        job_(job),
        question_(question),
        answer_(answer),
        chosen_(answer.rows.front()) {}

  [[nodiscard]] std::string reason() const;
  [[nodiscard]] std::vector<std::string> changes() const;
  void compare_zones(Advice& advice) const;
  void compare_on_demand(Advice& advice) const;
  void compare_spares(Advice& advice) const;
  void compare_hours(Advice& advice) const;

 private:
  [[nodiscard]] Row evaluated(const Candidate& candidate) const {
    return evaluate(market_, job_, question_, candidate, kPaths);
  }
  /// Whether the limits of the offers and the budget per hour allow all servers of such a plan.
  [[nodiscard]] bool is_allowed(Candidate candidate) const {
    candidate.workers += candidate.spares;
    candidate.composition.clear();  // servers of any offer replace those that it lacks
    return has_room(market_, question_, candidate);
  }
  [[nodiscard]] std::vector<Candidate> rivals() const;
  [[nodiscard]] std::optional<Candidate> choice_in(const Scenario& scenario) const;
  void add_price_change(std::vector<std::string>& changes) const;
  void add_scenarios(std::vector<std::string>& changes) const;

  const Market& market_;
  const JobModel& job_;
  const Question& question_;
  const Answer& answer_;
  const Row& chosen_;
};

std::string Adviser::reason() const {
  std::string limits;
  if (question_.deadline_s) {
    limits += fmt::format(" that finish within {}", time_words(*question_.deadline_s));
  }
  if (question_.budget) {
    limits += fmt::format("{} at most {}", limits.empty() ? " that cost" : " and cost",
                          money_words(*question_.budget));
  }
  if (!limits.empty()) {
    limits += fmt::format(" with probability {:g}", question_.probability);
  }
  const bool is_cheapest = question_.goal == Goal::kCheapest;
  std::string text = fmt::format(
      "{} is the {} of the {} plans{}: {} and {} on average{}",
      describe(market_, chosen_.candidate), is_cheapest ? "cheapest" : "fastest",
      std::ranges::count_if(answer_.rows, &Row::keeps_limits), limits,
      time_words(chosen_.summary.time_s.mean), money_words(chosen_.summary.cost.mean),
      limits.empty()
          ? ""
          : fmt::format(", kept on {:.1f} % of the paths", 100 * chosen_.summary.reached.value));
  const double best = is_cheapest ? chosen_.summary.cost.mean : chosen_.summary.time_s.mean;
  if (answer_.rows.size() > 1 && answer_.rows[1].keeps_limits && best > 0) {
    const Row& next = answer_.rows[1];
    const double more =
        (is_cheapest ? next.summary.cost.mean : next.summary.time_s.mean) / best - 1;
    text += fmt::format("; the next, {}, {} {:.1f} % more", describe(market_, next.candidate),
                        is_cheapest ? "costs" : "takes", 100 * more);
  }
  return text + ".";
}

/// The candidates that may take the place of the chosen one: the chosen one itself, the next ones,
/// and the front.
std::vector<Candidate> Adviser::rivals() const {
  std::vector<Candidate> list;
  for (std::size_t i = 0; i < answer_.rows.size(); ++i) {
    const Row& row = answer_.rows[i];
    if (row.is_simulated && (i < kRivals || (row.is_on_front && list.size() < 2 * kRivals))) {
      list.push_back(row.candidate);
    }
  }
  return list;
}

std::optional<Candidate> Adviser::choice_in(const Scenario& scenario) const {
  Question question = question_;
  question.sweep_paths = question.paths_most = kPaths;
  const Result<Answer> other =
      answer(changed(market_, scenario), changed(job_, scenario), question, rivals());
  if (!other.ok() || other.value().chosen() == nullptr) {
    return std::nullopt;
  }
  return other.value().chosen()->candidate;
}

/// A rival on other offers becomes cheaper when the price of the chosen offers rises.
void Adviser::add_price_change(std::vector<std::string>& changes) const {
  if (question_.goal != Goal::kCheapest || chosen_.summary.cost.mean <= 0) {
    return;
  }
  for (const Row& row : answer_.rows) {
    const bool shares = std::ranges::any_of(row.candidate.offers, [&](std::size_t offer) {
      return std::ranges::find(chosen_.candidate.offers, offer) != chosen_.candidate.offers.end();
    });
    if (row.keeps_limits && !shares) {
      changes.push_back(fmt::format("A price {:.1f} % higher makes {} the cheaper one.",
                                    100 * (row.summary.cost.mean / chosen_.summary.cost.mean - 1),
                                    describe(market_, row.candidate)));
      return;
    }
  }
}

void Adviser::add_scenarios(std::vector<std::string>& changes) const {
  struct Step {
    std::string what;
    Scenario scenario;
  };
  std::array<std::vector<Step>, 3> kinds;
  for (const int factor : {2, 3, 10}) {
    kinds[0].push_back({fmt::format("Losses {} times as frequent", factor), {}});
    kinds[0].back().scenario.hazard_factor = factor;
  }
  for (const int factor : {2, 3, 6}) {
    kinds[1].push_back({fmt::format("Start-up times {} times as long", factor), {}});
    kinds[1].back().scenario.start_up_factor = factor;
  }
  for (const int length_s : {10, 30, 120}) {
    kinds[2].push_back({fmt::format("A recovery of {} s after each loss", length_s), {}});
    kinds[2].back().scenario.recovery_s = length_s;
  }
  for (const std::vector<Step>& kind : kinds) {
    std::string text = kind.back().what + " would not change the choice.";
    for (const Step& step : kind) {
      const std::optional<Candidate> other = choice_in(step.scenario);
      if (!other) {
        text = step.what + " would leave no plan that keeps the limits among the best.";
        break;
      }
      if (!(*other == chosen_.candidate)) {
        text = step.what + " would make it " + describe(market_, *other) + ".";
        break;
      }
    }
    changes.push_back(text);
  }
}

std::vector<std::string> Adviser::changes() const {
  std::vector<std::string> changes;
  add_price_change(changes);
  if (question_.deadline_s) {
    changes.push_back(fmt::format("A deadline below {} is too short for it.",
                                  time_words(chosen_.deadline_for_p_s)));
  }
  add_scenarios(changes);
  return changes;
}

/// Compares the chosen plan's first offer in each zone that has it.
void Adviser::compare_zones(Advice& advice) const {
  const OfferModel& first = market_.offers[chosen_.candidate.offers.front()];
  const bool mixes_machines = std::ranges::any_of(chosen_.candidate.offers, [&](std::size_t offer) {
    return market_.offers[offer].machine != first.machine;
  });
  if (mixes_machines && !chosen_.candidate.composition.empty()) {
    return;
  }
  for (std::size_t offer = 0; offer < market_.offers.size(); ++offer) {
    const OfferModel& model = market_.offers[offer];
    if (model.machine == first.machine && model.offer.market == first.offer.market) {
      Candidate here = chosen_.candidate;
      here.offers = {offer};
      here.on_demand_floor = 0;
      here.composition.clear();
      here.falls_back = false;
      if (has_room(market_, question_, here)) {
        advice.zones.push_back({model.offer.zone, evaluated(here)});
      }
    }
  }
  if (advice.zones.size() < 2) {
    advice.zones.clear();
    return;
  }
  const auto by_cost = [](const Alternative& a, const Alternative& b) {
    return a.row.summary.cost.mean < b.row.summary.cost.mean;
  };
  const auto [best, worst] = std::ranges::minmax_element(advice.zones, by_cost);
  const double gap = worst->row.summary.cost.mean - best->row.summary.cost.mean;
  const double error = std::hypot(worst->row.summary.cost.error, best->row.summary.cost.error);
  advice.zones_differ =
      gap <= kErrorsVisible * error
          ? "Between the zones there is no difference in cost that the data show."
          : fmt::format("Zone {} costs {} less than {} ({:.1f} %).", best->label, money_words(gap),
                        worst->label, 100 * gap / worst->row.summary.cost.mean);
}

void Adviser::compare_on_demand(Advice& advice) const {
  const bool has_both = std::ranges::any_of(
      chosen_.candidate.offers, [&](std::size_t offer) { return is_spot(market_.offers[offer]); });
  Candidate mixed = chosen_.candidate;
  for (std::size_t offer = 0; offer < market_.offers.size(); ++offer) {
    const bool same = std::ranges::any_of(chosen_.candidate.offers, [&](std::size_t own) {
      return market_.offers[own].machine == market_.offers[offer].machine;
    });
    if (same && !is_spot(market_.offers[offer]) &&
        std::ranges::find(mixed.offers, offer) == mixed.offers.end()) {
      mixed.offers.push_back(offer);
    }
  }
  const bool has_on_demand = std::ranges::any_of(
      mixed.offers, [&](std::size_t offer) { return !is_spot(market_.offers[offer]); });
  if (!has_both || !has_on_demand) {
    return;
  }
  mixed.falls_back = false;
  mixed.composition.clear();
  const std::uint32_t step = std::max<std::uint32_t>(1, mixed.workers / 8);
  for (std::uint32_t floor = 0; floor <= mixed.workers; floor += step) {
    mixed.on_demand_floor = floor;
    if (is_allowed(mixed)) {
      advice.on_demand.push_back({fmt::format("{} on demand", floor), evaluated(mixed)});
    }
  }
  if (question_.deadline_s) {
    mixed.on_demand_floor = 0;
    mixed.falls_back = true;
    advice.on_demand.push_back({"from the last moment on", evaluated(mixed)});
  }
}

void Adviser::compare_spares(Advice& advice) const {
  Candidate more_workers = chosen_.candidate;
  ++more_workers.workers;
  if (!is_allowed(more_workers)) {
    return;
  }
  Candidate one = chosen_.candidate;
  for (const std::uint32_t spares : {0U, 1U, 2U}) {
    one.spares = spares;
    if (is_allowed(one)) {
      advice.spares.push_back(
          {fmt::format("{} spare{}", spares, spares == 1 ? "" : "s"), evaluated(one)});
    }
  }
  advice.spares.push_back({"one more worker", evaluated(more_workers)});
  const Summary& none = advice.spares[0].row.summary;
  const Summary& spare = advice.spares[1].row.summary;
  const Summary& more = advice.spares.back().row.summary;
  advice.spares_worth = fmt::format(
      "Without a spare {:.2g} workers are missing on average; a hot spare {}, one more worker {}.",
      (none.missing_s + none.stock_out_s) * chosen_.candidate.workers / none.time_s.mean,
      effect_words(none.time_s.mean - spare.time_s.mean, spare.cost.mean - none.cost.mean),
      effect_words(none.time_s.mean - more.time_s.mean, more.cost.mean - none.cost.mean));
}

void Adviser::compare_hours(Advice& advice) const {
  const bool has_hours = std::ranges::any_of(chosen_.candidate.offers, [&](std::size_t offer) {
    return market_.offers[offer].by_hour.has_value();
  });
  for (int hour = 0; has_hours && hour < 24; ++hour) {
    JobModel then = job_;
    then.clock_s = hour * kSecondsPerHour;
    advice.hours.push_back({fmt::format("{:02d}:00", hour),
                            evaluate(market_, then, question_, chosen_.candidate, kPaths)});
  }
}

/// Takes the mean time to a loss from the paths of a plan with frequent checkpoints.
void expect_loss(CheckpointAdvice& advice, const JobModel& job, const Summary& often) {
  constexpr double kUpTo95 = 3;  // with 95 %, a sample without events has a mean below this
  const double events = often.all_lost * static_cast<double>(often.paths);
  const double time_s = often.time_s.mean * static_cast<double>(often.paths);
  advice.is_bound = events < 1;
  advice.mean_to_loss_s = time_s / (advice.is_bound ? kUpTo95 : events);
  advice.young_s = young_interval(job.checkpoint_s, advice.mean_to_loss_s);
  advice.daly_s = daly_interval(job.checkpoint_s, advice.mean_to_loss_s);
}

Row with_interval(const Market& market, const JobModel& job, const Question& question,
                  Candidate candidate, double every_s, std::uint64_t paths) {
  candidate.checkpoint_every_s = every_s;
  return evaluate(market, job, question, candidate, paths);
}

}  // namespace

CheckpointAdvice advise_checkpoints(const Market& market, const JobModel& job,
                                    const Question& question, const Candidate& candidate,
                                    std::uint64_t paths) {
  ENSURE(job.checkpoint_s > 0, "a checkpoint costs something");
  CheckpointAdvice advice;
  const auto try_interval = [&](double every_s) -> const Row& {
    advice.tried.push_back({fmt::format("{:.1f} min", every_s / 60),
                            with_interval(market, job, question, candidate, every_s, paths)});
    return advice.tried.back().row;
  };
  (void)try_interval(kOften);
  for (const double minutes : {2, 5, 10, 20, 30, 60, 120}) {
    (void)try_interval(60 * minutes);
  }
  expect_loss(advice, job, advice.tried.front().row.summary);
  if (advice.daly_s > 0) {
    (void)try_interval(advice.daly_s);
  }
  const auto best = std::ranges::min_element(advice.tried, {}, [](const Alternative& one) {
    const Summary& summary = one.row.summary;
    return std::pair(-summary.finished.value, summary.time_s.mean);
  });
  advice.best_s = best->row.candidate.checkpoint_every_s;
  return advice;
}

double checkpoint_interval(const Market& market, const JobModel& job, const Question& question,
                           const std::vector<Candidate>& candidates) {
  if (job.checkpoint_s <= 0) {
    return question.checkpoint_every_s;
  }
  Question sweep = question;
  sweep.paths_most = sweep.sweep_paths;
  const Result<Answer> first = answer(market, job, sweep, candidates);
  if (!first.ok()) {
    return question.checkpoint_every_s;  // the limits are out of reach with any interval
  }
  constexpr double kLeast = 60;
  constexpr double kMost = 7200;
  CheckpointAdvice advice;
  expect_loss(
      advice, job,
      with_interval(market, job, question, first.value().rows.front().candidate, kOften, kPaths)
          .summary);
  return std::clamp(advice.daly_s, kLeast, kMost);
}

Advice advise(const Market& market, const JobModel& job, const Question& question,
              const Answer& answer) {
  ENSURE(answer.chosen() != nullptr, "something was chosen");
  const Adviser adviser(market, job, question, answer);
  Advice advice;
  advice.reason = adviser.reason();
  advice.changes = adviser.changes();
  adviser.compare_zones(advice);
  adviser.compare_on_demand(advice);
  adviser.compare_spares(advice);
  adviser.compare_hours(advice);
  if (job.checkpoint_s > 0) {
    advice.checkpoints =
        advise_checkpoints(market, job, question, answer.chosen()->candidate, kPaths);
  }
  return advice;
}

}  // namespace mayfly::planner
