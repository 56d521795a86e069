#pragma once

// The instruction sets that kernels are compiled for, and the one that this process uses.

#include "base/check.hpp"

namespace mayfly::nn::cpu {

enum class Isa {
  kPortable,  ///< the base set of the architecture; slow, for checks
  kAvx2,      ///< AVX2 and FMA
  kAvx512,    ///< AVX-512 F, BW, VL, DQ and CD
};

/// Chooses between the versions of a function compiled for each instruction set. Only the result
/// may be called.
template <typename Function>
[[nodiscard]] Function* for_isa(Isa isa, Function* avx512, Function* avx2, Function* portable) {
  switch (isa) {
    case Isa::kAvx512: return avx512;
    case Isa::kAvx2: return avx2;
    case Isa::kPortable: return portable;
  }
  UNREACHABLE("every instruction set has kernels");
}

/// Names an environment variable that hides instruction sets of newer processors from detection:
/// avx512_bf16 (everything), avx512 (no AVX512-BF16) or avx2 (no AVX-512; Highway's kernels are
/// limited as well). For running the tests as an older machine would; any other value is an
/// exception (std::invalid_argument).
inline constexpr const char* kMaxIsaVariable = "MAYFLY_TEST_MAX_ISA";

/// True if the machine can run it, and kMaxIsaVariable does not hide it. Thread-safe.
[[nodiscard]] bool machine_has(Isa isa);

/// The instruction set that select_isa fixed for this process; "auto" is fixed on the first call if
/// none was chosen. Thread-safe.
[[nodiscard]] Isa selected_isa();

}  // namespace mayfly::nn::cpu
