#pragma once

// Derives the options of the coordinator's state machine, which decides membership, from the
// settings of a job.

#include "base/ids.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// `job` is complete. `first_step`: the step of the checkpoint that it is resumed from, else 0.
/// `is_standby`: the coordinator waits until the one in charge is lost. Each call generates a new
/// identity and a new seed.
[[nodiscard]] elastic::CoordinatorOptions core_options(const Job& job, Step first_step,
                                                       bool is_standby);

}  // namespace mayfly::engine
