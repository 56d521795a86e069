#pragma once

#include <memory>

#include "engine/config/config.hpp"

namespace mayfly::elastic {
class Sentinel;
}

namespace mayfly::engine {

/// `mayfly worker`: one worker that joins config.coordinator, or one parameter server, or one
/// evaluator. Returns the exit code, see launch.hpp.
int run_worker(const JobConfig& config, std::unique_ptr<elastic::Sentinel> sentinel);

}  // namespace mayfly::engine
