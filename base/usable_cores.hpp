#pragma once

// Any thread.

#include <cstdint>

namespace mayfly {

/// Cores that the calling thread may run on, by its affinity mask, or fewer if the control groups
/// of this process have no more processor time than so many, which is looked up once; 0 if the
/// kernel does not say it.
[[nodiscard]] std::uint32_t usable_cores();

}  // namespace mayfly
