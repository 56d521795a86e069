#pragma once

// Converts tensors and names of the C interface to those of the engine.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/program/program_tensor.hpp"
#include "library/include/mayfly/mayfly.h"

namespace mayfly::library {

/// Copies names and shapes, not the memory. kInvalidInput with the tensor that is not possible.
[[nodiscard]] Result<std::vector<engine::ProgramTensor>> tensors_of(const mf_tensor* given,
                                                                    std::size_t count);

/// The names of metrics or sums. kInvalidInput if the files of a run could not contain one of them,
/// or if one occurs twice.
[[nodiscard]] Result<std::vector<std::string>> names_of(const char* const* given,
                                                        std::size_t count);

/// The type with this name, as in safetensors.
[[nodiscard]] mf_type type_named(std::string_view name);

}  // namespace mayfly::library
