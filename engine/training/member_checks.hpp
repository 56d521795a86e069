#pragma once

// How a member makes sure that all members have the same state and compute the same results, and
// what it says if not: the coordinator finds out who is wrong (ADR 18). Trainer thread only.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/core/member.hpp"
#include "elastic/core/view.hpp"
#include "engine/job/job.hpp"
#include "engine/training/compute_pool.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/step_work.hpp"
#include "engine/training/trainer_activity.hpp"
#include "engine/training/view_part.hpp"

namespace mayfly::engine {

class MemberChecks {
 public:
  /// Everything outlives it.
  MemberChecks(const Job& job, ComputePool& pool, StateKeeper& state, const StepWork& work,
               const ViewPart& part, const TrainerActivity& activity)
      : job_(job), pool_(pool), state_(state), work_(work), part_(part), activity_(activity) {}

  /// Nobody has disagreed in this view yet.
  void begin_view();

  /// At some steps the whole state is compared: a hash of what state_check() leaves out, to be
  /// taken while the microbatches are computed, because it takes long. All members of a view return
  /// one in the same steps.
  [[nodiscard]] std::optional<std::uint64_t> rest_of_state();
  /// What this member tells the others of the state that the step started from; nothing if it lacks
  /// it. After the microbatches are computed, as the weights were right all the while then. A state
  /// on a device is looked at while it computes, because it has to be fetched first.
  [[nodiscard]] std::optional<std::uint32_t> state_check(std::optional<std::uint64_t> rest);
  /// What this member got for the audited microbatch, if it is its own or its turn to compute it
  /// again.
  [[nodiscard]] std::optional<std::uint32_t> audit_check(const elastic::View& view);
  /// After the job's last step, as no reduction follows that would compare its state. kDiverged, or
  /// the group's failure.
  [[nodiscard]] Result<void> compare_last_state(collectives::Group& group, Instant deadline);

  /// The reduction has found a difference: remembers what this member has, and says it as an error.
  [[nodiscard]] Error states_differ();
  /// The same for the audited microbatch, which everybody computes again.
  [[nodiscard]] Error results_differ();
  /// Puts what this member has into its report on the view.
  void put_into(elastic::member_event::TrainerStopped& report) const;

 private:
  const Job& job_;
  ComputePool& pool_;
  StateKeeper& state_;
  const StepWork& work_;
  const ViewPart& part_;
  const TrainerActivity& activity_;
  // Why the present view ended, if the members found that they disagree, and our word on it.
  elastic::Dispute dispute_ = elastic::Dispute::kNone;
  std::vector<std::uint64_t> hashes_;
  bool contradicts_itself_ = false;
  std::optional<std::uint64_t> audited_hash_;  // what we said of the step's audited microbatch
};

}  // namespace mayfly::engine
