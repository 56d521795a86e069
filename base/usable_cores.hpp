#pragma once

// Any thread.

#include <cstdint>

namespace mayfly {

/// Cores that the calling thread may run on, by its affinity mask; 0 if the kernel does not say it.
/// Limits of a control group on processor time are not counted.
[[nodiscard]] std::uint32_t usable_cores();

}  // namespace mayfly
