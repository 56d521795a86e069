#pragma once

// Whether a running job should have other servers than the present ones: planner/runs/replan
// decides it; here are when it is asked, the facts that it is given, and the event of its proposal.

#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "cloud_hooks/core/replacement_events.hpp"
#include "elastic/net/coordinator_server.hpp"
#include "engine/config/config.hpp"
#include "planner/runs/replan.hpp"

namespace mayfly::engine {

struct Fact;

/// One thread.
class Replanning {
 public:
  /// Reads the plan that the job was started from, if there is one. `microbatches`: of a step.
  Replanning(const JobConfig& config, std::uint32_t microbatches);

  /// Whether to compare now: a few times a second, so that a change of members is seen, while the
  /// job runs. Never with --cloud-replan off.
  [[nodiscard]] bool is_due(Instant now, elastic::JobPhase phase);
  /// Only when is_due() has just said so; see planner::Replanner::handle().
  [[nodiscard]] planner::ReplanEffects compare(Instant now, const planner::ReplanFacts& facts);

 private:
  std::optional<planner::Replanner> replanner_;
  Instant due_{};
};

/// The facts about the servers, for a job that wants so many workers; the others are left as they
/// are.
[[nodiscard]] planner::ReplanFacts replan_facts(const cloud_hooks::Composition& present,
                                                std::uint32_t wanted);
/// `acts`: the job follows the proposal.
[[nodiscard]] Fact fact_of(const planner::Proposal& proposal, bool acts);

}  // namespace mayfly::engine
