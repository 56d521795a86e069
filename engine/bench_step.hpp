#pragma once

#include <cstdint>
#include <string>

namespace mayfly::engine {

struct StepBenchOptions {
  std::string model = "resnet20";
  std::uint32_t batch = 16;  ///< microbatch of each thread
  std::uint32_t threads = 1;
  double seconds = 5;  ///< measuring time, after a warm-up
  std::string dtype = "fp32";
  std::string isa = "auto";
  bool json = false;  ///< one JSON object instead of a sentence
};

/// `mayfly bench step`: forward, backward and exact-sum accumulation of whole microbatches on
/// synthetic images, plus one optimizer update per 128 images, on each of `threads` compute
/// threads. Reports images per second of wall clock and per second of CPU time (steadier on a
/// shared machine).
int bench_step(const StepBenchOptions& options);

}  // namespace mayfly::engine
