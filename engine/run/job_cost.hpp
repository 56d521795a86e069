#pragma once

// The cost of a job. Either its workers have a price (--price-per-hour) and JobCost bills their
// time, or a provider's servers have prices and the coordinator's cloud driver reports their cost.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "engine/config/config.hpp"
#include "engine/run/member_journal.hpp"
#include "engine/run/records.hpp"
#include "engine/run/run_history.hpp"

namespace mayfly::engine {

/// Any thread. Costs are in the currency of the prices.
class JobCost {
 public:
  /// `history`: the records of the job so far. The workers' cost since the last record is added up
  /// to `t`, the present in seconds on the time axis of the records.
  JobCost(const JobConfig& config, const RunHistory& history, double t);

  /// Handles a note of the coordinator about a member. Returns the cost if workers have a price and
  /// the note changes which members are billed.
  [[nodiscard]] std::optional<Spending> on_note(Instant when, const std::string& kind,
                                                std::uint64_t member);
  /// The cost by the workers' price; nothing if they have none.
  [[nodiscard]] std::optional<Spending> of_workers(Instant when) const;
  /// The same if it should be recorded again; see MemberBill::due().
  [[nodiscard]] std::optional<Spending> due(Instant now);
  /// The job is over: bills no worker any more. Returns the final cost if workers have a price.
  [[nodiscard]] std::optional<Spending> close(Instant now);
  /// Sets the cost of the provider's servers so far.
  void of_servers(const Spending& spending);
  /// The cost of the workers or of the servers; nothing if neither is known.
  [[nodiscard]] std::optional<Spending> at(Instant now) const;

 private:
  mutable std::mutex mutex_;
  std::optional<MemberBill> bill_;    // until the end, if workers have a price
  std::optional<Spending> spending_;  // of the servers, as reported last, or of the closed bill
};

}  // namespace mayfly::engine
