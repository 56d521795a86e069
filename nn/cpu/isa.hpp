#pragma once

namespace mayfly::nn::cpu {

enum class Isa {
  kPortable,  ///< what every machine of the architecture has; slow, for checks
  kAvx2,      ///< AVX2 and FMA
  kAvx512,    ///< AVX-512 F, BW, VL, DQ and CD
};

/// The machine can run it. Thread-safe.
[[nodiscard]] bool machine_has(Isa isa);

/// The instruction set that select_isa fixed for this process; "auto" is fixed on the first call if
/// nobody chose. Thread-safe.
[[nodiscard]] Isa selected_isa();

}  // namespace mayfly::nn::cpu
