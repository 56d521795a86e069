#pragma once

// What a job costs. Either its workers have a price (--price-per-hour), and their time is billed
// here, or a provider's servers have, and the cloud's part of the coordinator tells their bill.

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
  /// `history`: what is on record of the job. What its workers went on to cost since then is owed,
  /// up to `t`, the present in seconds on the time axis of the records.
  JobCost(const JobConfig& config, const RunHistory& history, double t);

  /// A note of the coordinator about a member. The cost, if workers have a price and the note
  /// changes who is billed.
  [[nodiscard]] std::optional<Spending> heard(Instant when, const std::string& kind,
                                              std::uint64_t member);
  /// The cost by the workers' price; nothing if they have none.
  [[nodiscard]] std::optional<Spending> of_workers(Instant when) const;
  /// The same when it has to go on record again; see MemberBill::due().
  [[nodiscard]] std::optional<Spending> due(Instant now);
  /// The job is over, and no worker is billed any more: the last sum, if workers have a price.
  [[nodiscard]] std::optional<Spending> close(Instant now);
  /// What the provider's servers have cost so far.
  void of_servers(const Spending& spending);
  /// The cost by either; nothing if neither is known.
  [[nodiscard]] std::optional<Spending> at(Instant now) const;

 private:
  mutable std::mutex mutex_;
  std::optional<MemberBill> bill_;    // until the end, if workers have a price
  std::optional<Spending> spending_;  // that the provider told last, or of the closed bill
};

}  // namespace mayfly::engine
