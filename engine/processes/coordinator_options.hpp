#pragma once

#include "elastic/core/coordinator.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// What the coordinator's machine is told of a job. `is_standby`: it waits until the coordinator in
/// charge is gone.
[[nodiscard]] elastic::CoordinatorOptions core_options(const Job& job, bool is_standby);

}  // namespace mayfly::engine
