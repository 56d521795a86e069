#pragma once

// `mayfly bench engines`: makes the engine table of a GPU (nn/cuda/engine_table).

#include <cstdint>
#include <span>
#include <string>

#include "nn/cuda/engine_choice.hpp"

namespace mayfly::bench {

struct EnginesBenchOptions {
  std::string model = "resnet50";
  std::uint32_t image_size = 0;  ///< 0 = the model's usual one
  std::uint32_t batch = 64;      ///< microbatch
  std::string dtype = "bf16";
  std::string device = "cuda";
  std::uint32_t rounds = 5;
  double seconds = 600;  ///< no further convolution is begun after so long
  /// Where the table goes; one that is there is added to. Empty: named after its kind, here.
  std::string output;
  bool json = false;  ///< JSON lines instead of sentences
};

/// What one convolution's timings come to, as a line. Pure.
[[nodiscard]] std::string engine_line(const nn::cuda::ConvKey& key,
                                      std::span<const nn::cuda::EngineTiming> timings, bool json);

/// Times every distinct convolution of a training step with each engine that cuDNN offers and
/// workers would take, and writes the table. Prints a line per convolution and a last one for all
/// to standard output; returns the exit code.
int bench_engines(const EnginesBenchOptions& options);

}  // namespace mayfly::bench
