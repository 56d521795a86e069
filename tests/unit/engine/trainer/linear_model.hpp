#pragma once

// A model that the engine does not know: linear regression with momentum, a few tensors, without
// threads, images or a network. It represents users' own models behind the ports of the trainer.

#include "tests/unit/engine/trainer/training_world.hpp"

namespace mayfly::test_support {

/// The parts that a worker needs to train it. `has_feed`: samples must be requested ahead, and
/// microbatches that were not are counted in `unrequested`; otherwise the trainer has no feed.
[[nodiscard]] WorkerKit make_linear_kit(const engine::JobConfig& config, bool has_feed,
                                        const std::function<void()>& unrequested);

}  // namespace mayfly::test_support
