// Simulates candidates, as many paths of each as the choice needs, and ranks them.

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.hpp"
#include "base/statistics.hpp"
#include "planner/search/amounts.hpp"
#include "planner/search/question.hpp"
#include "planner/simulation/path.hpp"

namespace mayfly::planner {
namespace {

constexpr double kErrorsApart = 3;         // beyond which two rows are surely different
constexpr std::size_t kFinalistsMax = 24;  // candidates that are simulated on more paths
constexpr double kShareError = 0.004;

/// A candidate's row, and the paths from which it was computed.
struct Trial {
  Row row;
  std::vector<PathOutcome> paths;
  double horizon_s = 0;
  double least_time_s = 0;  // without any loss, at the best speed within the uncertainty
  double least_cost = kNever;
};

Trial begin_trial(const Market& market, const JobModel& whole, const Question& question,
                  const Candidate& candidate) {
  const JobModel job = served(whole, candidate);
  constexpr double kBestLuck = 3;  // standard deviations
  Trial trial;
  trial.row.candidate = candidate;
  const WorkingSet set(market, job, candidate);
  trial.row.undisturbed_s = job.work / set.full_speed();
  if (question.accuracy) {
    trial.row.accuracy = question.accuracy(candidate);
  }
  const double luck = std::exp(kBestLuck * job.speed_log_sd);
  double start_least = kNever;
  double fastest = 0;
  double start_mean = 0;
  for (std::size_t i = 0; i < candidate.offers.size(); ++i) {
    const OfferModel& model = market.offers[candidate.offers[i]];
    start_least = std::min(start_least, model.start_up.quantile(0) + model.join.quantile(0));
    start_mean = std::max(start_mean, model.start_up.mean() + model.join.mean());
    // With more workers, each of them is not faster, so a single worker costs least.
    trial.least_cost = std::min(trial.least_cost, model.price_per_hour * job.work /
                                                      set.speed_of_one(i) / luck / kSecondsPerHour);
    fastest = std::max(fastest, set.speed_on(i));
  }
  start_least *= std::exp(-kBestLuck * job.start_up_log_sd);
  const double at_work_s = job.work / std::max(fastest, set.full_speed()) / luck;
  trial.least_time_s = at_work_s + start_least;
  trial.horizon_s = std::max(question.deadline_s.value_or(0) * 2,
                             4 * (trial.row.undisturbed_s + start_mean) * luck);
  trial.row.is_simulated = !(question.deadline_s && trial.least_time_s > *question.deadline_s) &&
                           !(question.budget && trial.least_cost > *question.budget);
  return trial;
}

/// The cause of most of the lost time of the paths that missed the limits.
Obstacle obstacle_of(const Trial& trial, const Question& question) {
  const Summary& summary = trial.row.summary;
  if (!trial.row.is_simulated) {
    return question.deadline_s && trial.least_time_s > *question.deadline_s ? Obstacle::kSpeed
                                                                            : Obstacle::kPrice;
  }
  if (summary.reached.value >= question.probability) {
    return Obstacle::kNone;
  }
  const double missed = 1 - summary.reached.value;
  if (summary.in_budget.value < summary.in_time.value || summary.stopped.value > missed / 2) {
    return Obstacle::kPrice;
  }
  std::vector<PathOutcome> late;
  for (const PathOutcome& path : trial.paths) {
    if (path.finish_s > question.deadline_s.value_or(trial.horizon_s)) {
      late.push_back(path);
    }
  }
  if (late.empty() || trial.row.undisturbed_s > question.deadline_s.value_or(kNever)) {
    return Obstacle::kSpeed;
  }
  const Summary of_late = summarise(late);
  const double lost = of_late.starting_s + of_late.missing_s + of_late.stock_out_s +
                      of_late.stopped_s + of_late.redone_s;
  const double slower = of_late.time_s.mean - trial.row.undisturbed_s - lost;
  return std::max({std::pair(of_late.starting_s, Obstacle::kStartUp),
                   std::pair(of_late.missing_s, Obstacle::kLosses),
                   std::pair(of_late.stock_out_s, Obstacle::kStockOut),
                   std::pair(of_late.stopped_s + of_late.redone_s, Obstacle::kRecovery),
                   std::pair(slower, Obstacle::kSpeed)})
      .second;
}

void judge(Trial& trial, const Question& question) {
  Row& row = trial.row;
  row.summary = summarise(trial.paths, question.deadline_s, question.budget);
  std::vector<double> times;
  for (const PathOutcome& path : trial.paths) {
    times.push_back(question.budget && path.cost > *question.budget ? kNever : path.finish_s);
  }
  row.deadline_for_p_s = percentile(std::move(times), question.probability);
  row.keeps_limits =
      row.summary.finished.value > 0 && row.summary.reached.value >= question.probability;
  row.obstacle = obstacle_of(trial, question);
}

void extend(Trial& trial, const Market& market, const JobModel& job, const Question& question,
            std::uint64_t count) {
  if (!trial.row.is_simulated || count <= trial.paths.size()) {
    return;
  }
  const auto more =
      simulate(market, served(job, trial.row.candidate), trial.row.candidate, trial.horizon_s,
               question.seed, trial.paths.size(), count - trial.paths.size());
  trial.paths.insert(trial.paths.end(), more.begin(), more.end());
  judge(trial, question);
}

JobModel with_limits(const JobModel& job, const Question& question) {
  JobModel changed = job;
  changed.deadline_s = question.deadline_s;
  changed.budget = question.budget;
  changed.budget_per_hour = question.budget_per_hour;
  return changed;
}

Spread objective(const Row& row, Goal goal) {
  return goal == Goal::kCheapest ? row.summary.cost : row.summary.time_s;
}

bool is_before(const Row& a, const Row& b, Goal goal) {
  const auto key = [&](const Row& row) {
    const double main = objective(row, goal).mean;
    const double other = goal == Goal::kCheapest ? row.summary.time_s.mean : row.summary.cost.mean;
    return std::tuple(!row.keeps_limits, row.keeps_limits ? 0 : -row.summary.reached.value, main,
                      other, row.candidate.offers.size());
  };
  if (a.is_simulated != b.is_simulated) {
    return a.is_simulated;
  }
  return a.is_simulated ? key(a) < key(b) : a.undisturbed_s < b.undisturbed_s;
}

bool dominates(const Row& a, const Row& b) {
  const double accuracy_a = a.accuracy.value_or(0);
  const double accuracy_b = b.accuracy.value_or(0);
  const bool no_worse = a.summary.time_s.mean <= b.summary.time_s.mean &&
                        a.summary.cost.mean <= b.summary.cost.mean && accuracy_a >= accuracy_b;
  // If plans are equal because they never used their further offers, the one with the fewest offers
  // stays.
  return no_worse && (a.summary.time_s.mean < b.summary.time_s.mean ||
                      a.summary.cost.mean < b.summary.cost.mean || accuracy_a > accuracy_b ||
                      a.candidate.offers.size() < b.candidate.offers.size());
}

void mark_front(std::vector<Trial>& trials) {
  for (Trial& trial : trials) {
    trial.row.is_on_front =
        trial.row.keeps_limits && std::ranges::none_of(trials, [&](const Trial& other) {
          return other.row.keeps_limits && dominates(other.row, trial.row);
        });
  }
}

/// The candidates to simulate on more paths: those that may be the best within their errors, the
/// first ones of the present order, and the front.
std::vector<std::size_t> finalists(const std::vector<Trial>& trials, const Question& question) {
  std::vector<std::size_t> chosen;
  double best = kNever;
  for (const Trial& trial : trials) {
    if (trial.row.keeps_limits) {
      const Spread value = objective(trial.row, question.goal);
      best = std::min(best, value.mean + kErrorsApart * value.error);
    }
  }
  for (std::size_t i = 0; i < trials.size() && chosen.size() < kFinalistsMax; ++i) {
    const Row& row = trials[i].row;
    if (!row.is_simulated) {
      continue;
    }
    const Spread value = objective(row, question.goal);
    const bool may_keep = row.summary.reached.value + kErrorsApart * row.summary.reached.error >=
                          question.probability;
    const bool may_be_best = may_keep && value.mean - kErrorsApart * value.error <= best;
    if (may_be_best || row.is_on_front) {
      chosen.push_back(i);
    }
  }
  return chosen;
}

void for_each(const Question& question, std::size_t count,
              const std::function<void(std::size_t)>& task) {
  if (question.for_each) {
    question.for_each(count, task);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    task(i);
  }
}

void rank(std::vector<Trial>& trials, const Question& question) {
  mark_front(trials);
  std::ranges::stable_sort(trials, [&](const Trial& a, const Trial& b) {
    return is_before(a.row, b.row, question.goal);
  });
}

/// The error that no candidate can keep the limits.
Error out_of_reach(const Market& market, const std::vector<Trial>& trials,
                   const Question& question) {
  const auto fastest = std::ranges::min_element(trials, {}, &Trial::least_time_s);
  const auto cheapest = std::ranges::min_element(trials, {}, &Trial::least_cost);
  if (question.deadline_s && fastest->least_time_s > *question.deadline_s) {
    return {Errc::kInvalidInput, "no plan can finish within " + time_words(*question.deadline_s) +
                                     ": the fastest, " + describe(market, fastest->row.candidate) +
                                     ", needs " + time_words(fastest->least_time_s) +
                                     " without any loss"};
  }
  if (question.budget && cheapest->least_cost > *question.budget) {
    return {Errc::kInvalidInput, "no plan can cost at most " + money_words(*question.budget) +
                                     ": the cheapest, " +
                                     describe(market, cheapest->row.candidate) + ", costs " +
                                     money_words(cheapest->least_cost) + " without any loss"};
  }
  return {Errc::kInvalidInput, "no plan can keep the deadline and the budget at once: within " +
                                   time_words(*question.deadline_s) +
                                   " only plans finish that cost more than " +
                                   money_words(*question.budget)};
}

}  // namespace

const char* to_string(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::kNone: return "";
    case Obstacle::kSpeed: return "speed";
    case Obstacle::kStartUp: return "start-up";
    case Obstacle::kLosses: return "losses";
    case Obstacle::kStockOut: return "stock-outs";
    case Obstacle::kRecovery: return "recovery";
    case Obstacle::kPrice: return "price";
  }
  return "";
}

Row evaluate(const Market& market, const JobModel& job, const Question& question,
             const Candidate& candidate, std::uint64_t count) {
  const JobModel limited = with_limits(job, question);
  Trial trial = begin_trial(market, limited, question, candidate);
  trial.row.is_simulated = true;
  extend(trial, market, limited, question, count);
  return trial.row;
}

Result<Answer> answer(const Market& market, const JobModel& job, const Question& question,
                      const std::vector<Candidate>& candidates) {
  ENSURE(!candidates.empty() && question.sweep_paths > 0, "there is something to choose from");
  const JobModel limited = with_limits(job, question);
  std::vector<Trial> trials(candidates.size());
  for_each(question, trials.size(), [&](std::size_t i) {
    trials[i] = begin_trial(market, limited, question, candidates[i]);
    if (trials[i].row.is_simulated) {
      extend(trials[i], market, limited, question, question.sweep_paths);
    } else {
      trials[i].row.obstacle = obstacle_of(trials[i], question);
    }
  });
  if (std::ranges::none_of(trials, [](const Trial& trial) { return trial.row.is_simulated; })) {
    return out_of_reach(market, trials, question);
  }
  rank(trials, question);
  for (std::uint64_t paths = 4 * question.sweep_paths; paths <= question.paths_most; paths *= 4) {
    const std::vector<std::size_t> open = finalists(trials, question);
    for_each(question, open.size(), [&](std::size_t i) {
      Trial& trial = trials[open[i]];
      if (!is_settled(trial.row.summary, kShareError)) {
        extend(trial, market, limited, question, paths);
      }
    });
    rank(trials, question);
  }
  Answer result;
  for (const Trial& trial : trials) {
    result.paths += trial.paths.size();
    result.rows.push_back(trial.row);
  }
  return result;
}

}  // namespace mayfly::planner
