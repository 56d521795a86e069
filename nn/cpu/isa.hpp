#pragma once

namespace mayfly::nn::cpu {

enum class Isa { kAvx2, kAvx512 };

/// The instruction set that select_isa fixed for this process; "auto" is fixed on the first call if
/// nobody chose. Thread-safe.
[[nodiscard]] Isa selected_isa();

}  // namespace mayfly::nn::cpu
