#pragma once

// Measures how fast one member computes, from its Progress reports of about every 100 ms. A single
// interruption (a frozen process, a full disk) must not change the result, but repeated
// interruptions (a process that is stopped and continued, a throttled or shared core) must. So
// reports are averaged over samples that are longer than the usual time between interruptions, and
// the result is the median of the last few samples. Pure; one thread.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/time.hpp"

namespace mayfly::elastic {

/// The shortest time of one sample; longer if reports come less often.
inline constexpr Duration kSpeedSample = milliseconds(500);

class SpeedMeter {
 public:
  /// A report: the member has computed `microbatches` since its last one; `microbatch_ms` is as in
  /// Progress. Reports without a time (0) are ignored. Instants never go back.
  void add(Instant now, float microbatch_ms, std::uint32_t microbatches,
           Duration sample = kSpeedSample);
  /// The median of the last samples once there are three; 0 before.
  [[nodiscard]] float settled_ms() const;
  /// settled_ms(), or the best estimate so far; 0 = there is none.
  [[nodiscard]] float best_ms() const;

 private:
  struct Sample {
    double total_ms = 0;
    std::uint64_t microbatches = 0;

    [[nodiscard]] float mean() const {
      return static_cast<float>(total_ms / static_cast<double>(microbatches));
    }
  };

  std::deque<Sample> samples_;  // complete, the oldest first
  Sample open_;
  Instant opened_;
};

}  // namespace mayfly::elastic
