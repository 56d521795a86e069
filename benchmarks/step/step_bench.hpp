#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"

namespace mayfly::bench {

struct StepBenchOptions {
  std::string model = "resnet20";
  std::uint32_t image_size = 0;  ///< 0 = the model's usual one
  std::uint32_t batch = 16;      ///< microbatch of each thread
  std::uint32_t threads = 1;
  /// Images per update of all threads together, a multiple of threads x batch. 0 = 128 or the
  /// largest multiple below it; for the ImageNet networks one microbatch of each thread.
  std::uint32_t global_batch = 0;
  double seconds = 5;          ///< measuring time, after a warm-up
  std::string dtype = "fp32";  ///< or bf16, on a GPU also fp16
  std::string isa = "auto";
  std::string conv_kernels = "auto";
  std::string device = "cpu";  ///< or cuda, cuda:N: one worker with that GPU
  bool exact = true;           ///< reduction; CPUs: exact only
  bool sums_on_gpu = false;    ///< with a GPU: as a worker with backend nccl
  bool images_on_gpu = false;  ///< with a GPU: as a worker whose training set is there
  bool layers = false;         ///< time per layer too
  bool json = false;           ///< JSON lines instead of sentences
};

/// `global_batch` with its default filled in. kInvalidInput if it is no multiple of threads x
/// batch.
[[nodiscard]] Result<std::uint32_t> resolve_global_batch(const StepBenchOptions& options,
                                                         const nn::Model& model);

/// `mayfly bench step`: forward, backward and exact-sum accumulation of whole microbatches on
/// synthetic images, plus the optimizer's update, on each of `threads` compute threads. Each thread
/// works as a worker of its own that computes its share of the global batch. Prints the report of
/// step_report.hpp to standard output; returns the exit code. With a GPU: gpu_step_bench.hpp.
int bench_step(const StepBenchOptions& options);

}  // namespace mayfly::bench
