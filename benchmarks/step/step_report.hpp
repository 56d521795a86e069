#pragma once

// The output of `mayfly bench step`, from its measurements. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/step/machine_peak.hpp"
#include "benchmarks/step/step_cost.hpp"
#include "benchmarks/step/step_timer.hpp"
#include "nn/cpu/conv_kernel.hpp"

namespace mayfly::bench {

/// The work of one compute thread.
struct ThreadRate {
  std::uint64_t images = 0;
  double seconds = 0;
  double cpu_seconds = 0;
};

struct StepBenchResult {
  std::string model, dtype, isa, conv_kernels;
  int image_size = 0;
  int classes = 0;
  std::uint32_t batch = 0;
  std::uint32_t global_batch = 0;
  std::vector<ThreadRate> threads;
  StepCost cost;  ///< of a microbatch
  MachinePeak machine;
  /// Empty unless requested: the kernels, and CPU seconds of all threads together.
  std::vector<nn::cpu::KernelChoice> kernels;
  StepSeconds times;
};

/// The figures of the report; docs/benchmarks.md defines them.
struct StepRates {
  double images_per_second = 0;           ///< all threads together
  double images_per_second_per_core = 0;  ///< divided by the number of threads
  double images_per_cpu_second = 0;
  double gflops_per_core = 0;  ///< direct-equivalent, per CPU-second
  double peak_fraction = 0;    ///< of the measured multiply-add peak
  double gigabytes_per_second = 0;
  double bandwidth_fraction = 0;  ///< of the measured triad
};
[[nodiscard]] StepRates rates_of(const StepBenchResult& result);

/// JSON lines: one object of kind "step", then, if layers were timed, one of kind "layer" for each
/// convolution and one of kind "rest" for each other part.
[[nodiscard]] std::string to_json_lines(const StepBenchResult& result);

/// The same as sentences.
[[nodiscard]] std::string to_text(const StepBenchResult& result);

}  // namespace mayfly::bench
