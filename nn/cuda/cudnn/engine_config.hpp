#pragma once

// Private to nn/cuda: engines of cuDNN with their knobs set ("configurations"): which it offers for
// a graph, which we take, and one by its name. A thread at a time.

#include <vector>

#include "nn/cuda/cudnn/planning_target.hpp"
#include "nn/cuda/engine_name.hpp"
#include "nn/dtype.hpp"

namespace mayfly::nn::cuda::cudnn {

/// What cuDNN's heuristics offer for a graph, the best first by their own account. Fails as cuDNN
/// does.
[[nodiscard]] Result<std::vector<Descriptor>> offered_for(const Descriptor& graph,
                                                          cudnnBackendHeurMode_t mode,
                                                          const PlanningTarget& target);

/// One engine with its knobs, whoever offers it. Fails, in cuDNN's words, if there is no such
/// engine for the graph, or its knobs cannot be set so.
[[nodiscard]] Result<Descriptor> configured(const Descriptor& graph, const EngineName& name,
                                            const PlanningTarget& target);

/// Why a configuration will not do, from what its engine says about itself: not deterministic,
/// compiled at run time, sums not in fp32, or TF32 where fp32 is wanted. Null if it will.
[[nodiscard]] Result<const char*> objection_to(const Descriptor& configuration, Dtype dtype);

[[nodiscard]] Result<EngineName> name_of(const Descriptor& configuration);

}  // namespace mayfly::nn::cuda::cudnn
