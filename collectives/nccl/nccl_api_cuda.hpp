#pragma once

// The real NCCL and CUDA runtime behind NcclApi.

#include <memory>

#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives {

/// Opens `device`: its context, a communication stream of high priority, our kernels. kIo if CUDA
/// refuses. The machine has been judged fit (nccl_facts.hpp).
[[nodiscard]] Result<std::unique_ptr<NcclApi>> make_cuda_nccl_api(int device);

}  // namespace mayfly::collectives
