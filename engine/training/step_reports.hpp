#pragma once

// What the trainer tells the coordinator's process about its steps: records for the run directory,
// progress, and that the job cannot go on. Reports of the last steps are repeated by a new
// reporter, and to a coordinator that was away, so that no step is missing on record. Trainer
// thread only.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "datasets/loader.hpp"
#include "elastic/core/view.hpp"
#include "elastic/net/member_client.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/gradient_buckets.hpp"
#include "engine/run/records.hpp"
#include "engine/training/compute_pool.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/view_part.hpp"
#include "nn/loss_scale.hpp"

namespace mayfly::engine {

/// What the reduction does not say of a step.
struct StepFacts {
  double loss = 0;
  std::optional<nn::LossScale> scale;  ///< that it was computed with
  std::uint32_t attempts = 1;
};

class StepReports {
 public:
  /// Everything outlives it. `recent` has the last steps of an earlier membership of this worker.
  StepReports(const Job& job, elastic::MemberClient& client, const datasets::Loader& loader,
              ComputePool& pool, StateKeeper& state, std::deque<StepRecord>& recent)
      : job_(job), client_(client), loader_(loader), pool_(pool), state_(state), recent_(recent) {}

  /// The step of part.position was committed.
  void committed(const elastic::View& view, const ViewPart& part, const ReducedStep& reduced,
                 const StepFacts& facts);
  /// Says how far this member is, and how fast it computes: in the first step of a view, and then
  /// ten times a second at most.
  void send_progress(const elastic::View& view, const ViewPart& part);
  /// Only the reporter's word is sent.
  void evaluated(const ViewPart& part, const EvaluationSums& sums);
  /// The job cannot go on, and is ended. Sent by the reporter, or by the only one that knows.
  void fatal(const std::string& reason);

  /// Repeats the last steps if this member is the reporter, or the source of the view: the last
  /// commit may be known only to that and to a reporter that is lost.
  void repeat(const elastic::View& view, const ViewPart& part);
  /// The same if the coordinator was away since the last time, as it may have lost what it had
  /// taken. True if so.
  bool repeat_to_coordinator_that_was_away(const elastic::View& view, const ViewPart& part);
  /// Others report the steps that this member has taken part in.
  void forget_recent() { recent_.clear(); }

  /// What the last step took, in microseconds; 0 in the first step of a view, as members enter it
  /// together.
  [[nodiscard]] std::uint32_t previous_step_us(const ViewPart& part) const;

 private:
  const Job& job_;
  elastic::MemberClient& client_;
  const datasets::Loader& loader_;
  ComputePool& pool_;
  StateKeeper& state_;
  std::deque<StepRecord>& recent_;
  Instant last_progress_;
  Instant last_commit_;
  Duration last_step_{};               // between the last two commits
  Duration waited_at_commit_{};        // of the loader
  std::uint64_t told_connection_ = 0;  // MemberClient::connections() when they were last repeated
};

}  // namespace mayfly::engine
