#pragma once

// Decides whether other servers would be better for a running job: compares its present ones with
// one more, one fewer, and one exchanged for the offer that would be requested next. A pure state
// machine: facts with their time go in, a proposal and a new target of workers come out. One
// thread. Times in seconds; money in the currency of the prices.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "planner/runs/kept_plan.hpp"

namespace mayfly::planner {

struct ReplanOptions {
  Duration every = seconds(60);  ///< between two comparisons
  bool acts = false;             ///< false: it only proposes changes
  std::uint32_t microbatches = 0;
  std::uint32_t workers_most = 1;
  std::optional<double> budget;           ///< for the whole job
  std::optional<double> budget_per_hour;  ///< for all servers together
  std::optional<KeptPlan> plan;           ///< from which the job was started
};

/// A server that exists, or that could be requested.
struct ReplanServer {
  std::string offer;  ///< as PlannedOffer has it
  double price_per_hour = 0;
  double speed = 0;         ///< of its worker, in a unit that is the same for all; above 0
  bool is_measured = true;  ///< `speed` was measured, on this machine type
  double age_s = 0;
};

struct ReplanFacts {
  double steps_done = 0;
  double steps_left = 0;
  double elapsed_s = 0;               ///< since the job began
  std::vector<ReplanServer> servers;  ///< servers whose workers are members
  std::optional<ReplanServer> next;   ///< the one that would be requested now
  std::uint32_t wanted = 0;           ///< the target of workers
  bool is_settled = false;            ///< all servers of the target work; none starts or leaves
  double spent = 0;
};

enum class Change : std::uint8_t { kMore, kFewer, kOther };

struct Proposal {
  Change change = Change::kMore;
  std::string offer;     ///< the new server's offer; with kFewer that of the server to give up
  PlannedRange gain;     ///< the expected gain, with its central 90 %
  bool is_time = false;  ///< the gain: seconds that the job ends earlier; otherwise money
  std::string because;   ///< one sentence
};

struct ReplanEffects {
  std::optional<Proposal> proposal;      ///< a new one, for records
  std::optional<std::uint32_t> workers;  ///< the new target of workers
  /// The target that follows `workers` when the exchange that begins is over.
  std::optional<std::uint32_t> workers_after;
};

/// Proposes a change if the central 90 % of its gain is above 0, and the gain is at least 2 % of
/// the remaining cost or time, in three comparisons in a row; the same change is proposed once. The
/// gain is money; for a plan with the goal `fastest`, or if the deadline is at risk, it is time.
/// With the change the job must end by its plan's deadline, or, without a deadline, at most 2 %
/// later than with the present servers. It must keep the budgets; if time is gained and there is no
/// budget, it may cost at most 2 % more. After a change that the Replanner made, it waits for ten
/// comparisons. If the target of workers is changed by somebody else during an exchange, the
/// exchange ends there and no server is given up.
class Replanner {
 public:
  explicit Replanner(ReplanOptions options) : options_(std::move(options)) {}

  /// Call it when the members change, and several times between two comparisons. Times of
  /// successive calls never decrease.
  [[nodiscard]] ReplanEffects handle(Instant now, const ReplanFacts& facts);

 private:
  struct Speed {
    double steps_per_s = 0;
    double log_sd = 0;
  };
  struct Measured {
    std::vector<ReplanServer> servers;  // as of the last comparison
    std::deque<double> speeds;          // steps per second
  };
  struct Outlook {
    double time_s = 0;
    double cost = 0;
    double log_sd = 0;     // of its speed, without the part common to all
    double wait_sd = 0;    // of the time until a new server works
    double log_level = 0;  // of all speeds together
  };
  struct Candidate {
    Change change;
    std::string offer;
    std::vector<ReplanServer> servers;
    std::optional<ReplanServer> added;
  };
  void measure(Instant now, const ReplanFacts& facts);
  [[nodiscard]] std::optional<Proposal> best_change(const ReplanFacts& facts) const;
  [[nodiscard]] std::vector<Candidate> candidates(const ReplanFacts& facts) const;
  [[nodiscard]] std::vector<ReplanServer> without_least_missed(
      const std::vector<ReplanServer>& servers, std::string& offer) const;
  [[nodiscard]] std::optional<Proposal> judged(const ReplanFacts& facts, const Outlook& present,
                                               const Candidate& candidate,
                                               const Outlook& outlook) const;
  [[nodiscard]] std::optional<Speed> measured_speed(const std::string& composition) const;
  [[nodiscard]] std::optional<Speed> speed_of(const std::vector<ReplanServer>& servers) const;
  [[nodiscard]] std::optional<Outlook> outlook_of(const ReplanFacts& facts,
                                                  const std::vector<ReplanServer>& servers,
                                                  const std::optional<ReplanServer>& added) const;
  [[nodiscard]] double expected_ratio(const std::vector<ReplanServer>& servers,
                                      const std::vector<ReplanServer>& others) const;
  [[nodiscard]] double error_of_ratios(const Speed& known) const;
  [[nodiscard]] double available(const std::vector<ReplanServer>& servers) const;
  [[nodiscard]] const PlannedOffer* planned(const ReplanServer& server) const;
  [[nodiscard]] bool keeps_budgets(const ReplanFacts& facts, const Candidate& candidate,
                                   const Outlook& outlook) const;
  void act(Instant now, const ReplanFacts& facts, ReplanEffects& effects);

  ReplanOptions options_;
  std::map<std::string, Measured> measured_;  // by composition
  std::vector<ReplanServer> reference_;       // whose speed was measured last
  std::string composition_;                   // at the last comparison
  double steps_at_last_comparison_ = 0;
  std::optional<Instant> last_comparison_;
  std::optional<Instant> rests_until_;
  std::optional<Proposal> last_;  // of the comparisons in a row
  int in_a_row_ = 0;
  std::string proposed_;  // the last proposal and its composition
  // The number of workers to return to when the added server works; nothing if none was added.
  std::optional<std::uint32_t> workers_after_exchange_;
};

}  // namespace mayfly::planner
