#pragma once

// The vector that a step's reduction sums for one of the built-in networks. Pure.

#include <cstddef>

#include "engine/reduction/reduction_layout.hpp"
#include "nn/model.hpp"

namespace mayfly::engine {

/// The layout of the statistics and parameters of `model`, in the model's order. An offset in a
/// flat array of the model counts from statistics_offset() or parameters_offset() of the layout.
[[nodiscard]] ReductionLayout layout_of(
    const nn::Model& model, std::size_t bucket_elements = ReductionLayout::kBucketElements);

}  // namespace mayfly::engine
