#pragma once

// Reports on a worker's steps that the trainer sends to the coordinator's process (records for the
// run directory, progress, fatal errors), and the schedule of digests and checkpoints. A new
// reporter repeats the reports of the last steps, also to a coordinator that was restarted, so that
// no step is missing in the records. Trainer thread only.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "datasets/feed.hpp"
#include "elastic/core/view.hpp"
#include "elastic/net/member_client.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/run/records.hpp"
#include "engine/training/computer.hpp"
#include "engine/training/recent_work.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/step_clock.hpp"
#include "engine/training/view_part.hpp"
#include "nn/dtype.hpp"

namespace mayfly::engine {

/// Facts about a step that are not in the result of its reduction.
struct StepFacts {
  double loss = 0;
  std::optional<nn::LossScale> scale;  ///< with which the step was computed
  std::uint32_t attempts = 1;
};

class StepReports {
 public:
  /// All arguments outlive it; `feed` may be null. `recent` has the last steps of an earlier
  /// membership of this worker.
  StepReports(const Job& job, elastic::MemberClient& client, const datasets::Feed* feed,
              Computer& computer, StateKeeper& state, StepClock& clock,
              std::deque<StepRecord>& recent)
      : job_(job),
        client_(client),
        feed_(feed),
        computer_(computer),
        state_(state),
        clock_(clock),
        recent_(recent) {}

  /// Reports that the step part.position was committed.
  void committed(const elastic::View& view, const ViewPart& part, const ReducedStep& reduced,
                 const StepFacts& facts);
  /// Reports the progress and the speed of this member: in the first step of a view, and then at
  /// most ten times a second.
  void send_progress(const elastic::View& view, const ViewPart& part);
  /// Reports the result of an evaluation, if this member is the reporter.
  void evaluated(const ViewPart& part, const EvaluationSums& sums, Duration took);
  /// Ends the job, which cannot go on. Called by the reporter, or by the only member that knows the
  /// reason.
  void fatal(const std::string& reason);

  /// Repeats the reports of the last steps if this member is the reporter or the source of the
  /// view: perhaps only the source and a lost reporter know of the last commit.
  void repeat(const elastic::View& view, const ViewPart& part);
  /// The same if the coordinator was restarted since the last time, because it may have lost
  /// reports. Returns whether it was.
  bool repeat_to_coordinator_that_was_away(const elastic::View& view, const ViewPart& part);
  /// Forgets the records of the last steps, because other members report these steps.
  void forget_recent() { recent_.clear(); }

  /// The duration of the last step in microseconds; 0 in the first step of a view, because members
  /// enter it together.
  [[nodiscard]] std::uint32_t previous_step_us(const ViewPart& part) const;
  /// How long compute threads have waited for data so far, in the mean.
  [[nodiscard]] MemberWaits waited() const;

 private:
  [[nodiscard]] elastic::Stages stages(Instant now);

  const Job& job_;
  elastic::MemberClient& client_;
  const datasets::Feed* feed_;  // null = none
  Computer& computer_;
  StateKeeper& state_;
  StepClock& clock_;
  std::deque<StepRecord>& recent_;
  Instant last_progress_;
  RecentWork recent_work_;
  // MemberClient::connections() when the records were last repeated:
  std::uint64_t repeated_on_connection_ = 0;
};

/// Whether the digest of the state after this step is recorded.
[[nodiscard]] bool is_digest_step(const Job& job, Step step);
/// Whether --checkpoint-every selects this step; not for the last one, whose checkpoint is part of
/// the end of the job.
[[nodiscard]] bool is_checkpoint_step(const Job& job, Step step);
/// Whether members compare the whole state after this step, besides in a view's first step. Only
/// such a state becomes a checkpoint (ADR 18).
[[nodiscard]] bool is_compared_step(const Job& job, Step step);

/// Decides at which steps the reporter writes a checkpoint.
class CheckpointSchedule {
 public:
  /// No checkpoint of the state after `committed` is needed. `job` outlives it.
  CheckpointSchedule(const Job& job, Step committed);

  /// To be called when the members agree on the state after `committed`: whether a checkpoint of it
  /// is due, if this member is the reporter. The caller then writes it. Checkpoints that are due by
  /// time are decided by the reporter alone, at a step at which the whole state is compared anyway.
  ///
  /// `is_leaving`: this process was told to leave. If the coordinator has not released it a second
  /// and two steps later, all members with the state were told to leave. Then a checkpoint is due
  /// at once and every kRescueInterval, before they are gone.
  ///
  /// The last member that has the state (ViewPart::is_last_holder) does the same without having
  /// been told: after kAloneWithin and every kAloneInterval, unless none are due by time at all.
  [[nodiscard]] bool take(Step committed, const ViewPart& part, Instant now, bool is_leaving);

  static constexpr Duration kRescueInterval = seconds(5);
  static constexpr Duration kAloneWithin = seconds(2);
  static constexpr Duration kAloneInterval = seconds(30);

 private:
  [[nodiscard]] bool is_due_by_time(Step committed, const ViewPart& part, Instant now) const;
  [[nodiscard]] bool is_due_as_rescue(Step committed, Instant now, bool is_leaving);
  [[nodiscard]] bool is_due_alone(const ViewPart& part, Instant now);

  const Job& job_;
  Step saved_{};
  Instant saved_at_;  // when the last checkpoint was due, or this object was made
  // When take() was first called with `is_leaving`, and the last committed step at that time.
  std::optional<std::pair<Instant, Step>> leaving_since_;
  std::optional<Instant> rescued_at_;  // when the last checkpoint was due for that reason
  std::optional<Instant> alone_since_;
};

}  // namespace mayfly::engine
