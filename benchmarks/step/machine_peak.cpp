#include "benchmarks/step/machine_peak.hpp"

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <ctime>
#include <thread>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/time.hpp"
#include "benchmarks/step/peak_loops.hpp"
#include "nn/cpu/isa.hpp"

namespace mayfly::bench {
namespace {

constexpr int kWindows = 5;
constexpr double kWindowSeconds = 0.08;
constexpr std::uint64_t kRoundsPerBurst = 100'000;

/// Values per array, so that the arrays of all threads together are four times the last cache.
std::size_t triad_count(std::uint32_t threads) {
  constexpr std::size_t kBytesMin = std::size_t{32} << 20;
  constexpr std::size_t kBytesMax = std::size_t{256} << 20;
  constexpr std::size_t kArrays = 3;
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::size_t wanted =
      cache > 0 ? 4 * static_cast<std::size_t>(cache) / (kArrays * threads) : 0;
  return std::clamp(wanted, kBytesMin, kBytesMax) / sizeof(float);
}

class PeakMeasurement {
 public:
  explicit PeakMeasurement(std::uint32_t threads)
      : loops_(peak_loops_for(nn::cpu::selected_isa())),
        count_(triad_count(threads)),
        flops_rates_(threads),
        triad_rates_(threads, std::vector<double>(kWindows)),
        start_(static_cast<std::ptrdiff_t>(threads)) {}

  MachinePeak run() {
    std::vector<std::thread> pool;
    for (std::size_t i = 0; i < flops_rates_.size(); ++i) {
      pool.emplace_back([this, i] { measure(i); });
    }
    for (std::thread& thread : pool) {
      thread.join();
    }
    return result();
  }

 private:
  void measure(std::size_t thread) {
    for (int window = 0; window < kWindows; ++window) {
      start_.arrive_and_wait();
      flops_rates_[thread] = std::max(flops_rates_[thread], flops_rate());
    }
    AlignedBuffer<float> a(count_);
    AlignedBuffer<float> b(count_);
    AlignedBuffer<float> c(count_);
    for (AlignedBuffer<float>* array : {&a, &b, &c}) {
      std::fill_n(array->data(), count_, 1.0F);  // unwritten pages would all be the zero page
    }
    for (int window = 0; window < kWindows; ++window) {
      start_.arrive_and_wait();
      triad_rates_[thread][static_cast<std::size_t>(window)] =
          triad_rate(a.data(), b.data(), c.data());
    }
  }

  [[nodiscard]] double flops_rate() const {
    const Instant begin = monotonic_now();
    const double cpu_begin = thread_cpu_seconds();
    double flops = 0;
    while (to_seconds(monotonic_now() - begin) < kWindowSeconds) {
      flops += loops_.multiply_add(kRoundsPerBurst);
    }
    return flops / (thread_cpu_seconds() - cpu_begin);
  }

  [[nodiscard]] double triad_rate(float* a, const float* b, const float* c) const {
    constexpr std::size_t kPart = std::size_t{1} << 18;  // the clock is read after each part
    const Instant begin = monotonic_now();
    double bytes = 0;
    double took = 0;
    for (std::size_t at = 0; took<kWindowSeconds; at = at + 2 * kPart> count_ ? 0 : at + kPart) {
      loops_.triad(kPart, b + at, c + at, 3, a + at);
      bytes += 3.0 * sizeof(float) * static_cast<double>(kPart);
      took = to_seconds(monotonic_now() - begin);
    }
    return bytes / took;
  }

  [[nodiscard]] MachinePeak result() const {
    MachinePeak peak;
    for (const double rate : flops_rates_) {
      peak.gflops_per_core += rate / 1e9 / static_cast<double>(flops_rates_.size());
    }
    for (std::size_t window = 0; window < kWindows; ++window) {
      double together = 0;
      for (const std::vector<double>& rates : triad_rates_) {
        together += rates[window] / 1e9;
      }
      peak.gigabytes_per_second = std::max(peak.gigabytes_per_second, together);
    }
    return peak;
  }

  const PeakLoops& loops_;
  std::size_t count_;
  std::vector<double> flops_rates_;               // each thread writes its own
  std::vector<std::vector<double>> triad_rates_;  // by thread, then window
  std::barrier<> start_;                          // all threads compute at the same time
};

}  // namespace

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

MachinePeak measure_machine(std::uint32_t threads) {
  return PeakMeasurement(threads).run();
}

}  // namespace mayfly::bench
