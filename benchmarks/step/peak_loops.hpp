#pragma once

// Loops that reach the peak rates of a machine, for comparison with measured rates. The caller
// measures the time.

#include <cstddef>
#include <cstdint>

#include "nn/cpu/isa.hpp"

namespace mayfly::bench {

struct PeakLoops {
  /// Computes independent fp32 multiply-adds in registers; returns the number of floating-point
  /// operations (a multiply-add counts as two). About 25 ns per thousand at 4 GHz on AVX-512.
  double (*multiply_add)(std::uint64_t rounds);
  /// a = b + factor * c over `count` values (STREAM's triad, McCalpin 1995): 12 bytes each.
  void (*triad)(std::size_t count, const float* b, const float* c, float factor, float* a);
};

/// Any thread. The machine must have `isa`.
[[nodiscard]] const PeakLoops& peak_loops_for(nn::cpu::Isa isa);

}  // namespace mayfly::bench
