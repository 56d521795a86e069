#pragma once

#include "base/time.hpp"

namespace mayfly {

/// Processor time that the calling thread has used. It does not advance while the thread waits, is
/// stopped, or is not scheduled. Comparable only within one thread. For adapters only.
[[nodiscard]] Instant thread_cpu_now();

}  // namespace mayfly
