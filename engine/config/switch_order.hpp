#pragma once

// Phases as the published launcher of Sync-Switch spells them: --switch-order 10 --train-steps
// 400,61200. Pure; no thread matters.

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// Turns `switch_order` and `train_steps` into `phases` and `steps`, and empties them; nothing if
/// neither is given. One character of the order is a phase: 1 = bsp, 0 = asp. The numbers are the
/// global step at which each phase ends, counted as that launcher counts: a step of bsp, and every
/// push of asp (a slice here), is one. Lengths of asp are rounded to whole steps of the job.
/// kInvalidInput says what is wrong.
[[nodiscard]] Result<void> spell_out_switch_order(JobConfig& config);

}  // namespace mayfly::engine
