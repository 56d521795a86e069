#pragma once

// Compares the servers of a running job with others: planner/runs/replan decides; this header
// decides when to ask it, and provides its input and the event of its proposal.

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

  /// Whether to compare now: a few times a second while the job runs, so that changes of members
  /// are noticed. Never with --cloud-replan off.
  [[nodiscard]] bool is_due(Instant now, elastic::JobPhase phase);
  /// To be called only after is_due() has returned true; see planner::Replanner::handle().
  [[nodiscard]] planner::ReplanEffects compare(Instant now, const planner::ReplanFacts& facts);

 private:
  std::optional<planner::Replanner> replanner_;
  Instant due_{};
};

/// The facts about the servers of a job that wants this many workers; other fields have their
/// defaults.
[[nodiscard]] planner::ReplanFacts replan_facts(const cloud_hooks::Composition& present,
                                                std::uint32_t wanted);
/// `acts`: the job follows the proposal.
[[nodiscard]] Fact fact_of(const planner::Proposal& proposal, bool acts);

}  // namespace mayfly::engine
