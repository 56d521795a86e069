#pragma once

// Any thread.

#include <cstdint>

namespace mayfly {

/// Bytes of memory that this process can still take without swapping and without exceeding the
/// limit of its control group (versions 1 and 2, or of one above it). Pages of the page cache count
/// as free. UINT64_MAX if the kernel does not say it.
[[nodiscard]] std::uint64_t usable_memory();
/// The same without limits of control groups.
[[nodiscard]] std::uint64_t usable_memory_of_machine();

}  // namespace mayfly
