#pragma once

#include <memory>

#include "base/result.hpp"
#include "collectives/nccl/sum_calls.hpp"

namespace mayfly::collectives {

/// The calls of the CUDA runtime on this GPU. kIo, in one line, if it cannot be opened.
[[nodiscard]] Result<std::unique_ptr<SumCalls>> make_cuda_sum_calls(int device);

}  // namespace mayfly::collectives
