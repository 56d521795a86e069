#pragma once

// The reaction of a worker whose GPU fails during a step.

#include "base/result.hpp"

namespace mayfly {

/// Prints the error on standard error and aborts the process, which the job handles like the death
/// of any other worker. Code that runs within a step has no caller that could handle an error, and
/// without its GPU the process cannot continue. Does nothing if `outcome` is ok. Any thread.
void require_gpu(const Result<void>& outcome);

}  // namespace mayfly
