#pragma once

// What becomes of a worker whose GPU fails in the middle of a step.

#include "base/result.hpp"

namespace mayfly {

/// In a step there is nobody to return an error to, and without its GPU this process is of no use:
/// says so on standard error and aborts the process, which is a worker's death like any other. Does
/// nothing if `outcome` is ok. Any thread.
void require_gpu(const Result<void>& outcome);

}  // namespace mayfly
