#pragma once

// The rules of a job, from its settings, for the state machine that decides who is a member of it.

#include "base/ids.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// `job` is complete. `first_step`: that of the checkpoint that it is resumed from, else 0.
/// `is_standby`: the coordinator waits until the one in charge is gone. Each call makes another
/// identity and another seed.
[[nodiscard]] elastic::CoordinatorOptions core_options(const Job& job, Step first_step,
                                                       bool is_standby);

}  // namespace mayfly::engine
