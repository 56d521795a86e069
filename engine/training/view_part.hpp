#pragma once

// The part of this member in the present view, and the activity of its trainer. Trainer thread
// only.

#include <cstdint>

#include "base/ids.hpp"
#include "elastic/net/progress_board.hpp"
#include "engine/run/trace.hpp"
#include "engine/training/state_keeper.hpp"

namespace mayfly::engine {

/// The trainer and its state exchange write it; the other classes of the trainer only read it.
struct ViewPart {
  Rank rank{};
  bool is_reporter = false;  ///< it sends the step records of the view
  bool observes = false;     ///< it does not have the state yet
  /// No other member has the state, but in an earlier view others had it.
  bool is_last_holder = false;
  /// Its whole part of the view's first step was given to the group, so that other members may have
  /// committed this step. Also true if the view begins after the job's last step.
  bool has_contributed = false;
  std::uint64_t steps = 0;  ///< committed in this view
  Step position{};  ///< the last committed step of the view; that of the state, unless it observes

  [[nodiscard]] bool is_first_step() const { return steps == 0; }
};

/// Tells the trace and the sentinel what the trainer's thread is doing; the sentinel reports a
/// process that makes no progress.
class TrainerActivity {
 public:
  /// `trace` may be null; the other arguments outlive this object.
  TrainerActivity(Trace* trace, elastic::ProgressBoard& board, const ViewPart& part,
                  const StateKeeper& state)
      : lane_(lane_of(trace, "trainer")), board_(board), part_(part), state_(state) {}

  /// A span of the trace that lasts as long as the value, in the step after the last committed one.
  [[nodiscard]] TraceSpan span(const char* name, TraceArgument argument = {}) const {
    return {lane_, name, value(next(part_.position)), argument};
  }
  /// Tells the sentinel.
  void turn_to(elastic::Activity activity, std::uint32_t bucket = elastic::kNoPart) const {
    board_.enter(activity, next(state_.committed()), bucket);
  }

 private:
  TraceLane* lane_;  // null without a trace
  elastic::ProgressBoard& board_;
  const ViewPart& part_;
  const StateKeeper& state_;
};

}  // namespace mayfly::engine
