#pragma once

// `mayfly bench step --device cuda`: what one worker with a GPU does between two exchanges.

#include <cstdint>
#include <string>

#include "benchmarks/step/step_bench.hpp"

namespace mayfly::bench {

/// What was measured.
struct GpuStepResult {
  std::string model, dtype, device;
  int image_size = 0;
  int classes = 0;
  std::uint32_t batch = 0;
  std::uint32_t global_batch = 0;
  bool exact = true;           ///< reduction
  bool sums_on_gpu = false;    ///< backend nccl
  bool images_on_gpu = false;  ///< else they come from the host
  std::uint64_t updates = 0;
  double seconds = 0;
};

/// One JSON object of kind "gpu_step" and a line end. Pure.
[[nodiscard]] std::string to_json_line(const GpuStepResult& result);
/// The same for people. Pure.
[[nodiscard]] std::string to_text(const GpuStepResult& result);

/// Whole updates on synthetic images, which are copied to the GPU for every microbatch or looked up
/// in a set that is there, as workers do: forward, backward, sum and update: with backend
/// nccl on the GPU, while weights go to the host, else on the host, with the way of gradients there
/// and of weights back. Prints the above to standard output; returns the exit code.
int bench_gpu_step(const StepBenchOptions& options, const nn::Model& model, nn::Dtype dtype);

}  // namespace mayfly::bench
