#pragma once

// Private to nn/cuda: the layers of a step plan, from the description of a network. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "nn/cuda/step_plan.hpp"

namespace mayfly::nn::cuda {

/// Sets layers, filters and classifier of `plan`; returns the layers' names.
[[nodiscard]] std::vector<std::string> describe_layers(const Model& model, std::uint32_t microbatch,
                                                       StepPlan& plan);

}  // namespace mayfly::nn::cuda
