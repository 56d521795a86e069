#pragma once

// The servers that a job wants, and the limits and time-outs of the policy that provides them.
// Plain data, which engine/cloud/cloud_plan fills from the job's configuration.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

struct ReplacementOptions {
  std::uint64_t identity = 0;  ///< random for each process; the ids of its requests follow from it
  /// The ids of all requests of a job end with these eight hexadecimal digits, in each of its
  /// processes. A listed server with other digits belongs to another job of the same name. Empty:
  /// every listed server belongs to this job.
  std::string job_mark;
  std::uint32_t target = 1;           ///< workers wanted
  std::uint32_t max = 1;              ///< target stays within 1 and max
  std::uint32_t on_demand_floor = 0;  ///< least number of on-demand servers, if they are offered
  /// Servers of the offers that are for evaluators, in addition to target and max. 0 also if
  /// evaluators use the workers' offers: they are a part of target and max then.
  std::uint32_t evaluators = 0;
  std::vector<OfferTerms> offers;                           ///< at least one
  std::vector<std::pair<std::string, std::string>> labels;  ///< of every request
  std::string startup_text;                                 ///< of every request
  Capabilities provider;
  /// Requests that may wait for their answers at the same time. A further one is decided when one
  /// of them is answered, by the demand and the budget of that time. 0 = any number.
  std::uint32_t requests_at_once = 0;
  std::uint32_t microbatches = 0;  ///< of a step; 0 = unknown
  /// The expected share of future time in which a server of this age, or its replacement, works; a
  /// pure function. Empty: the share is the same for all.
  std::function<double(const Offer& offer, Duration age)> up_share;

  std::optional<double> budget;           ///< for the whole job
  std::optional<double> budget_per_hour;  ///< for all servers together
  double spent_before = 0;                ///< by earlier processes of this job, until now
  double per_hour_before = 0;  ///< hourly cost of their servers, until it is known which still run
  /// There were earlier processes; servers that they requested may still appear in lists.
  bool restarted = false;
  /// Their cost is in spent_before; otherwise servers that they left are billed from their start.
  bool spent_is_known = true;

  Duration lifetime_max = seconds(86400);  ///< of a server; 0 = no limit
  Duration billed_at_least = seconds(60);  ///< shortest billed time of a server
  Duration stop_margin = seconds(300);     ///< the job is stopped this long before the budget's end
  Duration release_margin = seconds(60);   ///< all servers are released this long before it
  Duration gather = milliseconds(20);      ///< losses within this time are one batch
  Duration start_timeout = seconds(600);   ///< from granted to running
  Duration join_timeout = seconds(600);    ///< from running to a worker in the job
  /// The time that a lost worker has to join again on its server. If the provider has not answered
  /// since the loss, this process may be the one that is cut off; the time then begins again with
  /// the provider's next answer.
  Duration rejoin_patience = seconds(15);
  Duration leave_timeout = seconds(120);    ///< from the order to leave to the release
  Duration surplus_patience = seconds(60);  ///< before servers beyond the target are given up
  /// An on-demand server is exchanged for a spot server (with a composition: a surplus server for
  /// one that is lacking) if the new offer has had no refusal and no burst of losses for this long;
  /// 0 = never.
  Duration back_to_spot_after = seconds(900);
  Duration shun_after_burst = seconds(120);  ///< an offer that lost many servers is ranked last
  Duration list_every = seconds(15);         ///< time between lists of servers
  Duration absence_grace = seconds(45);      ///< a new server may be missing in lists this long
  Duration rate_wait = seconds(1);           ///< before a request or a release is repeated; doubles
  Duration rate_wait_max = seconds(30);
  int repeats_max = 6;  ///< of one request; after that list() shows what became of it
  BackoffOptions backoff;

  /// The longest time by which a provider may postpone the repetition of a request or a release.
  [[nodiscard]] Duration retry_after_max() const { return 10 * rate_wait_max; }
};

/// How long to wait before something is repeated that was repeated so many times before.
[[nodiscard]] inline Duration repetition_wait(const ReplacementOptions& options, int repeats) {
  return std::min(options.rate_wait * (std::int64_t{1} << std::min(repeats, 20)),
                  options.rate_wait_max);
}

}  // namespace mayfly::cloud_hooks
