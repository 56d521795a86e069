#pragma once

// `mayfly bench step --device cuda`: the work of one worker with a GPU between two exchanges.

#include <cstdint>
#include <string>

#include "benchmarks/step/step_bench.hpp"

namespace mayfly::bench {

/// The settings and results of a measurement.
struct GpuStepResult {
  std::string model, dtype, device;
  int image_size = 0;
  int classes = 0;
  std::uint32_t batch = 0;
  std::uint32_t global_batch = 0;
  bool exact = true;           ///< reduction
  bool sums_on_gpu = false;    ///< backend nccl
  bool images_on_gpu = false;  ///< otherwise they are copied from the host
  std::uint64_t updates = 0;
  double seconds = 0;
};

/// One JSON object of kind "gpu_step" and a line end. Pure.
[[nodiscard]] std::string to_json_line(const GpuStepResult& result);
/// The same as sentences. Pure.
[[nodiscard]] std::string to_text(const GpuStepResult& result);

/// Measures whole updates on synthetic images, which are copied to the GPU for every microbatch or
/// looked up in a set in its memory, as in a worker: forward, backward, sum and update. With
/// backend nccl the sum and update are on the GPU, while weights are copied to the host; otherwise
/// they are on the host, with the copies of gradients to it and of weights back. Prints the above
/// to standard output; returns the exit code.
int bench_gpu_step(const StepBenchOptions& options, const nn::Model& model, nn::Dtype dtype);

}  // namespace mayfly::bench
