#pragma once

// Decides when a process of a job with parameter servers reports that it has stopped, when its view
// is to end. A pure state machine, which its caller guards. Training does not stop when the view
// changes, so orders to stop are answered at once, with one exception: the process with the first
// shard answers a planned order when all workers have finished a step. The job's last step may be
// committed before or after that answer; in the latter case the process reports it in the next
// view.

#include <optional>
#include <utility>

#include "elastic/core/messages.hpp"

namespace mayfly::engine {

class StopAnswers {
 public:
  /// The report to be sent now, if there is one.
  using Answer = std::optional<elastic::Stopped>;

  /// `committed`: the step that this process reports before the job's last step, `last`, is done.
  StopAnswers(Step committed, Step last) : committed_(committed), last_(last) {}

  /// To be called when a view begins.
  [[nodiscard]] Answer begin(ViewId view) {
    view_ = view;
    runs_ = true;
    boundary_ordered_ = false;
    return finished_ ? stop() : Answer();
  }
  /// To be called if this process leads the first shard.
  void wait_for_quiet() { waits_for_quiet_ = true; }
  /// To be called on an order to stop at the end of a step, before the first shard is held, because
  /// quiet() may follow at once.
  [[nodiscard]] Answer boundary() {
    boundary_ordered_ = waits_for_quiet_ && runs_;
    return boundary_ordered_ ? Answer() : stop();
  }
  /// To be called when the first shard is held in this view and no worker has work left.
  [[nodiscard]] Answer quiet(ViewId held_in) {
    return boundary_ordered_ && view_ == held_in ? stop() : Answer();
  }
  /// To be called when the job's last step is committed and on record.
  [[nodiscard]] Answer finished() {
    finished_ = true;
    return stop();
  }
  /// The process stops. `why` has the reason if the coordinator has not ordered it.
  [[nodiscard]] Answer stop(elastic::Stopped why = {}) {
    if (!std::exchange(runs_, false)) {
      return std::nullopt;
    }
    boundary_ordered_ = false;
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
  bool runs_ = false;  // a view runs, and the process has not reported that it stopped
  bool waits_for_quiet_ = false;
  bool boundary_ordered_ = false;
  bool finished_ = false;
};

}  // namespace mayfly::engine
