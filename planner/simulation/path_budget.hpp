#pragma once

// The requests that the budgets of a job, per hour and for the whole job, and the limits of its
// offers still allow. Each rule names the one of cloud_hooks/core/ReplacementPolicy that it must
// agree with. It has no state of its own: it reads the servers and their bill. Offers are those of
// the candidate, times are seconds since the job's begin. Pure; one thread.

#include <cstdint>
#include <span>

#include "planner/simulation/path_servers.hpp"
#include "planner/simulation/policy_rules.hpp"

namespace mayfly::planner {

/// A request that will be refused, from its sending until the answer. Until then its servers count
/// and are on the bill. A request that is granted is answered at once.
struct OpenRequest {
  std::size_t offer = 0;
  std::uint32_t count = 0;
};

class PathBudget {
 public:
  /// `offers`, `job` and `servers` must outlive it.
  PathBudget(const PolicyRules& rules, const CandidateOffers& offers, const JobModel& job,
             const PathServers& servers)
      : rules_(rules), offers_(offers), job_(job), servers_(servers) {}

  /// How many of the `wanted` servers of the offer may be requested now:
  /// cloud_hooks::Budget::affordable() and Demand::room().
  [[nodiscard]] std::uint32_t affordable(std::size_t offer, std::uint32_t wanted,
                                         std::span<const OpenRequest> open, double now_s) const;
  /// The lifetime of a server that is requested now; 0 = no limit:
  /// cloud_hooks::Budget::lifetime().
  [[nodiscard]] double lifetime_s(std::size_t offer, std::span<const OpenRequest> open,
                                  double now_s) const;
  /// The time at which the job may have to be stopped, if nothing changes before; kNever if that is
  /// certainly not before `before_s`: cloud_hooks::Budget::next_alarm().
  [[nodiscard]] double alarm_s(double before_s, double now_s) const;
  /// Whether the job has to be stopped now: cloud_hooks::ReplacementPolicy::watch_budget().
  [[nodiscard]] bool is_used_up(double now_s) const;

 private:
  [[nodiscard]] std::uint32_t room(std::size_t offer, std::span<const OpenRequest> open) const;

  const PolicyRules rules_;
  const CandidateOffers& offers_;
  const JobModel& job_;
  const PathServers& servers_;
};

}  // namespace mayfly::planner
