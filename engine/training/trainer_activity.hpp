#pragma once

// What the trainer's thread is doing, told to the trace and to the sentinel, which reports a
// process that stands still.

#include <cstdint>

#include "elastic/net/progress_board.hpp"
#include "engine/run/trace.hpp"
#include "engine/training/state_keeper.hpp"
#include "engine/training/view_part.hpp"

namespace mayfly::engine {

class TrainerActivity {
 public:
  /// `trace` may be null; the others outlive it.
  TrainerActivity(Trace* trace, elastic::ProgressBoard& board, const ViewPart& part,
                  const StateKeeper& state)
      : lane_(lane_of(trace, "trainer")), board_(board), part_(part), state_(state) {}

  /// For the trace: as long as the value lives, in the step after the last committed one.
  [[nodiscard]] TraceSpan span(const char* name, TraceArgument argument = {}) const {
    return {lane_, name, value(next(part_.position)), argument};
  }
  /// For the sentinel.
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
