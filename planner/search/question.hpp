#pragma once

// A question about a job on a market, and its answer: every way to run the job, simulated, ranked,
// with the Pareto front marked. Pure; any thread.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "planner/simulation/market.hpp"
#include "planner/simulation/summary.hpp"

namespace mayfly::planner {

enum class Goal {
  kCheapest,  ///< least mean cost that keeps the limits
  kFastest,   ///< least mean time that keeps them
};

/// Runs `task(0)` to `task(count - 1)`, in any order and on any threads, and returns when all are
/// done.
using ForEach =
    std::function<void(std::size_t count, const std::function<void(std::size_t)>& task)>;

struct Question {
  Goal goal = Goal::kCheapest;
  std::optional<double> deadline_s;
  std::optional<double> budget;
  std::optional<double> budget_per_hour;  ///< for all servers together
  double probability = 0.95;              ///< with which a candidate must keep the limits
  std::uint64_t seed = 1;
  std::uint64_t sweep_paths = 200;  ///< of every candidate
  std::uint64_t paths_most = 3200;  ///< of each candidate that may be chosen
  std::uint32_t workers_least = 1;
  std::uint32_t workers_most = 16;
  double checkpoint_every_s = 0;
  bool has_mixtures = true;  ///< sets of offers, not only single ones
  /// Expected accuracy of the result, if it depends on the candidate: the third axis of the front.
  /// Nothing if it is not known, which counts as worse than any known one.
  std::function<std::optional<double>(const Candidate&)> accuracy;
  ForEach for_each;  ///< empty = one after the other
};

/// The reason why a candidate does not keep its limits.
enum class Obstacle { kNone, kSpeed, kStartUp, kLosses, kStockOut, kRecovery, kPrice };
/// "speed", "start-up", ...; "" for kNone.
[[nodiscard]] const char* to_string(Obstacle obstacle);

struct Row {
  Candidate candidate;
  double undisturbed_s = 0;     ///< the work at full speed
  bool is_simulated = false;    ///< false: the limits are out of reach even without a loss
  Summary summary;              ///< if simulated
  double deadline_for_p_s = 0;  ///< the earliest deadline that it keeps with that probability
  std::optional<double> accuracy;
  bool keeps_limits = false;
  bool is_on_front = false;  ///< of those that keep the limits, none is as good in every respect
  Obstacle obstacle = Obstacle::kNone;
};

struct Answer {
  /// First the rows that keep the limits, ordered by the goal, then the others, ordered by their
  /// probability to keep them.
  std::vector<Row> rows;
  std::uint64_t paths = 0;  ///< simulated in all

  /// The first row, if it keeps the limits.
  [[nodiscard]] const Row* chosen() const {
    return rows.empty() || !rows.front().keeps_limits ? nullptr : &rows.front();
  }
};

/// The ways to run a job: each offer; all spot offers of a machine; all spot offers; each of these
/// sets of spot offers with on-demand offers of the same machines (and at least none, one or half
/// of the servers on demand); and compositions: spot servers of a machine spread evenly over its
/// zones, or of two machines in three proportions. All of them for numbers of workers within the
/// limits of the question, of the offers and of the hourly budget.
[[nodiscard]] std::vector<Candidate> candidates_of(const Market& market, const Question& question);

/// Each candidate with each of the job's ways to use parameter servers, if the job has some.
[[nodiscard]] std::vector<Candidate> with_servings(const JobModel& job,
                                                   const std::vector<Candidate>& candidates);

/// Takes out the candidates whose workers together have no known speed (0), and returns them.
[[nodiscard]] std::vector<Candidate> take_unknown_speeds(const Market& market, const JobModel& job,
                                                         std::vector<Candidate>& candidates);

/// Simulates one candidate on `count` paths.
[[nodiscard]] Row evaluate(const Market& market, const JobModel& job, const Question& question,
                           const Candidate& candidate, std::uint64_t count);

/// Simulates all candidates on a few paths, then those that may be chosen on more, until the Monte
/// Carlo errors are small. kInvalidInput if no candidate can keep the limits even without a loss;
/// the text has the least possible values.
[[nodiscard]] Result<Answer> answer(const Market& market, const JobModel& job,
                                    const Question& question,
                                    const std::vector<Candidate>& candidates);

/// Whether the limits of its offers and the budget per hour allow all of its workers.
[[nodiscard]] bool has_room(const Market& market, const Question& question,
                            const Candidate& candidate);

/// The candidate in words: "8 x n1-k80, spot in us-west1-b", "..., else on demand".
[[nodiscard]] std::string describe(const Market& market, const Candidate& candidate);

}  // namespace mayfly::planner
