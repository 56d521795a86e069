#pragma once

#include "base/time.hpp"

namespace mayfly {

/// Processor time that the calling thread has used: it stands still while the thread waits, is
/// stopped, or is kept from running by others. Comparable only within one thread. Adapters only.
[[nodiscard]] Instant thread_cpu_now();

}  // namespace mayfly
