#pragma once

#include <cstdint>
#include <string>

namespace mayfly::bench {

struct DataBenchOptions {
  std::string data = "procedural";  ///< see datasets/dataset.hpp
  std::uint32_t image_size = 0;     ///< 0 = the data set's own size, or 224
  std::uint32_t threads = 1;
  double seconds = 5;                ///< measuring time, after a warm-up
  std::uint64_t store_bytes = 0;     ///< of --store; 0 = without
  std::uint64_t prepared_bytes = 0;  ///< of --prepared-store; 0 = without
  bool skip_corrupt = false;
  bool json = false;  ///< a JSON object instead of each line
};

/// `mayfly bench data`: prepares training microbatches of 16 (reads, decodes, crops, normalises) on
/// `threads` threads that do nothing else. Reports images per second of wall clock and per second
/// of CPU time (steadier on a shared machine). With a store, or with prepared images, two further
/// lines follow for each: for microbatches of the first epoch, which fill it, and for the same
/// microbatches again.
int bench_data(const DataBenchOptions& options);

}  // namespace mayfly::bench
