#pragma once

// What a process of a job with parameter servers answers when its view is to end, as a pure state
// machine; its caller guards it. Training does not stop for a change of view, so orders are
// answered at once, except that the process with the first shard answers a planned one when
// all workers have come to the end of a step. The job's last step may be done before or after that
// answer; a process that has not said so says it in the next view.

#include <optional>
#include <utility>

#include "elastic/core/member.hpp"

namespace mayfly::engine {

class StopAnswers {
 public:
  /// What is to be said now, if anything.
  using Answer = std::optional<elastic::member_event::TrainerStopped>;

  /// `committed`: the step that this process says it has before the end; `last`: the job's last.
  StopAnswers(Step committed, Step last) : committed_(committed), last_(last) {}

  /// A view begins.
  [[nodiscard]] Answer begin(ViewId view) {
    view_ = view;
    runs_ = true;
    boundary_asked_ = false;
    return finished_ ? stop() : Answer();
  }
  /// We have the first shard.
  void wait_for_quiet() { waits_for_quiet_ = true; }
  /// Told to stop at the end of a step. Before the first shard is held: it may be quiet at once.
  [[nodiscard]] Answer boundary() {
    boundary_asked_ = waits_for_quiet_ && runs_;
    return boundary_asked_ ? Answer() : stop();
  }
  /// The first shard is held in this view, and no worker has anything left to do.
  [[nodiscard]] Answer quiet(ViewId held_in) {
    return boundary_asked_ && view_ == held_in ? stop() : Answer();
  }
  /// The job's last step is committed and on record.
  [[nodiscard]] Answer finished() {
    finished_ = true;
    return stop();
  }
  /// `why`: if we were not told to.
  [[nodiscard]] Answer stop(elastic::member_event::TrainerStopped why = {}) {
    if (!std::exchange(runs_, false)) {
      return std::nullopt;
    }
    boundary_asked_ = false;
    why.view = view_;
    why.finished = finished_;
    why.committed = finished_ ? last_ : committed_;
    return why;
  }
  [[nodiscard]] Step committed() const { return committed_; }

 private:
  const Step committed_;
  const Step last_;
  ViewId view_{};      // the newest
  bool runs_ = false;  // and we have not said that we stopped
  bool waits_for_quiet_ = false;
  bool boundary_asked_ = false;
  bool finished_ = false;
};

}  // namespace mayfly::engine
