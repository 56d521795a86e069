#pragma once

// The checks that all members have the same state and compute the same results, and the report of a
// member that finds a difference, from which the coordinator decides which member is wrong (ADR
// 18). Trainer thread only.
//
// In an audit one microbatch of a step, drawn at random, is computed by a second member as well,
// and the step is committed only if both got the same bits. This finds a processor that computes
// wrongly, which no comparison of states can.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/group.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/view.hpp"
#include "engine/job/job.hpp"
#include "engine/training/computer.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/step_work.hpp"
#include "engine/training/view_part.hpp"

namespace mayfly::engine {

class MemberChecks {
 public:
  /// All arguments outlive it.
  MemberChecks(const Job& job, Computer& computer, StateKeeper& state, const StepWork& work,
               const ViewPart& part, const TrainerActivity& activity)
      : job_(job),
        computer_(computer),
        state_(state),
        work_(work),
        part_(part),
        activity_(activity) {}

  /// Forgets the differences that were found in earlier views.
  void begin_view();

  /// In the steps in which the whole state is compared: the hash of everything that state_check()
  /// leaves out. It is computed while the microbatches are computed, because it takes long. All
  /// members of a view return a hash in the same steps.
  [[nodiscard]] std::optional<std::uint64_t> rest_of_state();
  /// The hash of the state that the step started from, for comparison with the other members;
  /// nothing if this member does not have the state. It is computed after the microbatches, because
  /// then the weights were right during the whole step. A state on a device is fetched and hashed
  /// while the device computes.
  [[nodiscard]] std::optional<std::uint32_t> state_check(std::optional<std::uint64_t> rest);
  /// The hash of this member's result for the audited microbatch, if it is one of its own or this
  /// member has to compute it a second time.
  [[nodiscard]] std::optional<std::uint32_t> audit_check(const elastic::View& view);
  /// Compares the state after the job's last step, as no reduction follows that would do so.
  /// kDiverged, or the group's failure.
  [[nodiscard]] Result<void> compare_last_state(collectives::Group& group, Instant deadline);

  /// The reduction has found a difference between states: remembers the hashes of this member and
  /// returns the error.
  [[nodiscard]] Error states_differ();
  /// The same for the audited microbatch, which every member computes again.
  [[nodiscard]] Error results_differ();
  /// Adds the remembered hashes to this member's report on the view.
  void put_into(elastic::Stopped& report) const;

 private:
  const Job& job_;
  Computer& computer_;
  StateKeeper& state_;
  const StepWork& work_;
  const ViewPart& part_;
  const TrainerActivity& activity_;
  // The kind of difference that ended the present view, if there is one, and this member's hashes.
  elastic::Dispute dispute_ = elastic::Dispute::kNone;
  std::vector<std::uint64_t> hashes_;
  bool contradicts_itself_ = false;
  std::optional<std::uint64_t> audited_hash_;  // last result for the audited microbatch
};

/// The microbatch of a step that is audited, counted from 0; none if the step is not audited. All
/// members draw the same one, in any view. Pure.
[[nodiscard]] std::optional<std::uint32_t> audited_microbatch(Step step, std::uint64_t every,
                                                              std::uint64_t seed,
                                                              std::uint32_t microbatches);

/// The member that computes it a second time: the workers of the view that do not have it in their
/// own share take turns. None if there is no such worker. `in_first_step`: it is the first step of
/// the view, in which shares may differ from those of later steps. Pure.
[[nodiscard]] std::optional<Rank> auditor_of(const elastic::View& view, std::uint32_t microbatch,
                                             Step step, bool in_first_step);

}  // namespace mayfly::engine
