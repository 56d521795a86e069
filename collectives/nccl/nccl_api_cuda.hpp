#pragma once

// The real NCCL and CUDA runtime behind NcclApi and SumCalls.

#include <memory>

#include "collectives/nccl/nccl_api.hpp"
#include "collectives/nccl/sum_calls.hpp"

namespace mayfly::collectives {

/// Opens `device`: its context, a communication stream of high priority, our kernels. kIo if CUDA
/// refuses. The machine has been judged fit (nccl_facts.hpp).
[[nodiscard]] Result<std::unique_ptr<NcclApi>> make_cuda_nccl_api(int device);

/// The calls of the CUDA runtime on this GPU. kIo, in one line, if it cannot be opened.
[[nodiscard]] Result<std::unique_ptr<SumCalls>> make_cuda_sum_calls(int device);

}  // namespace mayfly::collectives
