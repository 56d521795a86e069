#pragma once

// Information beside a chosen candidate: the same candidate in other zones and at other hours,
// spares and larger clusters, checkpoint intervals, shares on demand, and changes of the market
// that would change the choice. Each comparison is simulated with the same random numbers as the
// choice. Pure; any thread.

#include <optional>
#include <string>
#include <vector>

#include "planner/search/question.hpp"

namespace mayfly::planner {

struct Alternative {
  std::string label;
  Row row;
};

struct CheckpointAdvice {
  double mean_to_loss_s = 0;  ///< of all members at once; a lower bound if `is_bound`
  bool is_bound = false;      ///< no path lost all: with 95 % the mean time is longer
  double young_s = 0;
  double daly_s = 0;
  double best_s = 0;               ///< the simulated optimum, of the intervals in `tried`
  std::optional<double> chosen_s;  ///< the interval of the plan, if the plan chose it
  std::vector<Alternative> tried;
};

struct Advice {
  std::string reason;                  ///< why the chosen row is the first, in one sentence
  std::vector<std::string> changes;    ///< what would change the choice, a sentence each
  std::vector<Alternative> zones;      ///< the chosen offer's machine and market in every zone
  std::string zones_differ;            ///< in one sentence
  std::vector<Alternative> on_demand;  ///< by number of servers on demand
  std::vector<Alternative> spares;     ///< none, one, two hot spares, one more worker, if allowed
  std::string spares_worth;            ///< in one sentence
  std::vector<Alternative> hours;      ///< of launch; empty if no offer has a hazard by hour
  std::optional<CheckpointAdvice> checkpoints;  ///< empty if a checkpoint costs nothing
};

/// Needs an answer with a chosen row.
[[nodiscard]] Advice advise(const Market& market, const JobModel& job, const Question& question,
                            const Answer& answer);

/// Intervals from a minute to two hours, simulated. `paths` of each.
[[nodiscard]] CheckpointAdvice advise_checkpoints(const Market& market, const JobModel& job,
                                                  const Question& question,
                                                  const Candidate& candidate, std::uint64_t paths);

/// Daly's interval between checkpoints, from a minute to two hours, for the plan that is chosen
/// with the question's own interval; the latter if a checkpoint costs nothing or no plan is
/// possible.
[[nodiscard]] double checkpoint_interval(const Market& market, const JobModel& job,
                                         const Question& question,
                                         const std::vector<Candidate>& candidates);

}  // namespace mayfly::planner
