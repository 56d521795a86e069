#pragma once

#include <cstdint>

namespace mayfly::bench {

/// The peak rates of the machine with so many threads, measured in about a second.
struct MachinePeak {
  double gflops_per_core = 0;       ///< fp32 multiply-adds in registers, per CPU-second of a thread
  double gigabytes_per_second = 0;  ///< triad far beyond the last cache, all threads together
};

/// Measures with the process's instruction set (nn::cpu::select_isa must be called first). The best
/// of several short windows counts, because other programs can only make a machine look slower.
[[nodiscard]] MachinePeak measure_machine(std::uint32_t threads);

/// CPU time of the calling thread.
[[nodiscard]] double thread_cpu_seconds();

}  // namespace mayfly::bench
